"""The log of first contacts: errors of an engine on rows that no developer had read.

Lines are only appended. The seal of a line is the digest of the seal before it and of its own figures: a line
that is changed, removed or moved breaks the chain. The tests hold the seals of the known waves.
"""

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

LOG = Path(__file__).resolve().with_name("log.csv")
ROWS = LOG.with_name("rows.csv")
"""ln(predicted / measured) of each wave's step times at its first contact, told the notes, with the framework
known and withheld (`blind`). Intervals are fitted to them."""
_ERRORS = "rows median_pct p90_pct bias_pct mean_of_source_medians_pct"
_OTHERS = "inside_80_pct width_pct null_median_pct null_p90_pct"
COLUMNS = ("wave", "date", "commit", "quantity", "told", "source", *_ERRORS.split(), *_OTHERS.split(), "seal")
"""`source` is "all" for the pooled figures; a figure that was not reported is empty."""


def _seal(before: str, line: Mapping[str, str]) -> str:
    text = "\x1f".join([before, *(line[name] for name in COLUMNS if name != "seal")])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def read(path: Path = LOG) -> list[dict[str, str]]:
    """The lines of the log; a ValueError names the first one that does not follow from those before it."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    before = ""
    for number, line in enumerate(lines, start=2):
        if line["seal"] != _seal(before, line):
            raise ValueError(f"{path.name}, line {number}: the log was rewritten; it may only grow")
        before = line["seal"]
    return lines


def waves(path: Path = LOG) -> list[str]:
    """The waves in the log, oldest first."""
    return list(dict.fromkeys(line["wave"] for line in read(path)))


def append(lines: Sequence[Mapping[str, object]], path: Path = LOG) -> None:
    """Append the lines of a new wave; a wave that is in the log is refused."""
    known = read(path)
    again = {str(line["wave"]) for line in lines} & {line["wave"] for line in known}
    if again:
        raise ValueError(
            f"{path.name}: {', '.join(sorted(again))} is in the log; a first contact happens once"
        )
    before = known[-1]["seal"] if known else ""
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for line in lines:
            row = {name: str(line.get(name, "")) for name in COLUMNS}
            before = row["seal"] = _seal(before, row)
            writer.writerow(row)
