"""Hold measurements of load within ranges: `python -m bench.ranges BENCH RESULT.json...`.

`ranges.csv` has the mean of several runs of each figure: a ratio, a count or memory, never a bare time. A
figure may be a fifth worse than its mean. With --record the means of the results replace those of the bench.
"""

import argparse
import csv
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RANGES = Path(__file__).with_name("ranges.csv")
COLUMNS = ("bench", "figure", "better", "mean", "runs")
MARGIN = 1.2

Row = Mapping[str, str]


def limit(row: Row) -> float:
    """The worst value that is within the range."""
    mean = float(row["mean"])
    return mean * MARGIN if row["better"] == "less" else mean / MARGIN


def outside(row: Row, value: float) -> bool:
    """Whether a measurement is worse than its range."""
    return value > limit(row) if row["better"] == "less" else value < limit(row)


def read_ranges(path: Path = RANGES) -> list[dict[str, str]]:
    """The rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_ranges(rows: Iterable[Row], path: Path = RANGES) -> None:
    """Replace the table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_result(path: Path, figures: Iterable[str]) -> dict[str, float]:
    """The figures of a result; ends with one line if one is missing."""
    document: dict[str, Any] = json.loads(path.read_text())
    for figure in figures:
        if not isinstance(document.get(figure), int | float):
            sys.exit(f"error: {path}: no number for {figure}; run the bench again")
    return {figure: float(document[figure]) for figure in figures}


def recorded(rows: Sequence[Row], results: Sequence[Mapping[str, float]]) -> list[dict[str, str]]:
    """The rows with the means of these results."""
    count = str(len(results))
    means = [statistics.mean(result[row["figure"]] for result in results) for row in rows]
    return [{**row, "mean": f"{mean:.4g}", "runs": count} for row, mean in zip(rows, means, strict=True)]


def report(rows: Sequence[Row], result: Mapping[str, float]) -> str:
    """A line for each figure."""
    lines = []
    for row in rows:
        value = result[row["figure"]]
        sign = "<=" if row["better"] == "less" else ">="
        note = "   OUTSIDE" if outside(row, value) else ""
        lines.append(f"{row['figure']:24} {value:10.3g}   {sign} {limit(row):.3g}{note}\n")
    return "".join(lines)


def main(arguments: Sequence[str] | None = None, *, path: Path = RANGES) -> int:
    """Check results, or record them; 1 if a figure is outside its range."""
    table = read_ranges(path)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench", choices=sorted({row["bench"] for row in table}))
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    rows = [row for row in table if row["bench"] == given.bench]
    figures = [row["figure"] for row in rows]
    results = [read_result(each, figures) for each in given.results]
    if given.record:
        others = [row for row in table if row["bench"] != given.bench]
        write_ranges(sorted([*others, *recorded(rows, results)], key=lambda row: row["bench"]), path)
        return 0
    sys.stdout.write("\n".join(report(rows, result) for result in results))
    return int(any(outside(row, result[row["figure"]]) for row in rows for result in results))


if __name__ == "__main__":
    sys.exit(main())
