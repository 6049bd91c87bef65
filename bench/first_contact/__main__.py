"""Errors of the engine on published runs that no fit has used.

    python -m bench.first_contact FILE.csv [REFERENCE] [--log WAVE]

FILE has the columns of published_runs.csv. Step times and peak memory, pooled and per source; `untold`: the
table's columns alone; `told`: inputs in the table's free text become columns. Printed: predicted / measured -
1 in percent; the share of rows in the 80 % interval and its half width; the null model, a constant
utilisation for each GPU type and precision from the reference rows of other sources. --log appends the
figures to log.csv as the first contact with WAVE; use it before anyone looks at the rows.
"""

import argparse
import datetime as dt
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench import memory_rows, step_rows
from bench.first_contact.log import append
from bench.fit.step_time import null_errors
from bench.fitting import read
from bench.reference import reference

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.uncertainty import Z_80, memory_sigma, step_sigma

Line = Mapping[str, object]
SWEEPS = ("VTRAIN",)
"""Large sweeps of one lab, which pooled figures leave out: they would outweigh all else."""


def main() -> None:
    """Print the tables; with --log append the figures to the log."""
    parser = parse()
    given = parser.parse_args()
    table = read(given.file.parent, given.file.name)
    known = step_rows.load(reference(given.reference))
    lines: list[Line] = []
    for told in (False, True):
        lines += [{"quantity": "step", "told": told} | line for line in steps(table, known, told=told)]
        lines += [{"quantity": "memory", "told": told} | line for line in memory(table, told=told)]
    show(lines)
    if given.log:
        stamp = {"wave": given.log, "date": given.date, "commit": _commit()}
        append([stamp | line | {"told": "yes" if line["told"] else "no"} for line in lines])


def parse() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a table with the columns of published_runs.csv")
    parser.add_argument("reference", nargs="?", help="folder of the reference tables, for the null model")
    parser.add_argument("--log", metavar="WAVE", help="append the figures as the first contact with WAVE")
    parser.add_argument("--date", default=dt.datetime.now(dt.UTC).date().isoformat(), help="the log's date")
    return parser


def steps(
    table: Sequence[Mapping[str, str]], known: step_rows.StepRows, *, told: bool
) -> list[dict[str, Any]]:
    """The figures of step times."""
    rows = step_rows.build([r for r in table if step_rows.is_judged(r)], notes=told)
    if not told:
        _report_unsupported("step times", rows.unsupported)
    error = np.log(step_time.estimate(rows.cases).total_s / rows.measured_s)
    return [*figures(rows.source, error, step_sigma(rows.cases), null_errors(rows, known))]


def memory(table: Sequence[Mapping[str, str]], *, told: bool) -> list[dict[str, Any]]:
    """The figures of peak memory."""
    rows = memory_rows.build(table, notes=told)
    if not rows.rows:
        return []
    error = np.log(memory_rows.predicted_bytes(rows) / rows.measured_bytes)
    return [*figures(rows.source, error, memory_sigma(rows.cases), None)]


def figures(source: Array, error: Array, sigma: Array, null: Array | None) -> Iterator[dict[str, Any]]:
    """Pooled figures first, then every source's; errors are ln(predicted / measured)."""
    pooled = ~np.isin(source, SWEEPS)
    half = np.broadcast_to(Z_80 * sigma, error.shape)
    groups = {"all": pooled} | {str(name): source == name for name in np.unique(source)}
    for name, mine in groups.items():
        if not mine.any():
            continue
        line = {"source": name, "rows": int(mine.sum())} | _errors(error[mine])
        line["inside_80_pct"] = round(100 * float(np.mean(np.abs(error[mine]) <= half[mine])), 1)
        line["width_pct"] = round(100 * float(np.median(half[mine])), 1)
        if name == "all":
            medians = [_errors(error[source == s])["median_pct"] for s in np.unique(source[mine])]
            line["mean_of_source_medians_pct"] = round(float(np.mean(medians)), 1)
        if null is not None:
            off = _errors(null[mine])
            line |= {"null_median_pct": off["median_pct"], "null_p90_pct": off["p90_pct"]}
        yield line


def _errors(error: Array) -> dict[str, float]:
    """Median and 90th percentile of |predicted / measured - 1|, and the median of the signed error."""
    ratio = 100 * np.expm1(error)
    size = np.abs(ratio)
    values = {"median_pct": np.median(size), "p90_pct": np.percentile(size, 90), "bias_pct": np.median(ratio)}
    return {name: round(float(value), 1) for name, value in values.items()}


def show(lines: Iterable[Line]) -> None:
    """One table of both quantities, with and without the inputs in free text."""
    print(
        f"{'':7}{'':7}{'source':10}{'n':>5} {'median':>7} {'p90':>7} {'bias':>7} {'inside 80 %':>12}"
        f" {'+-':>5}  null median, p90"
    )
    for line in lines:
        told = "told" if line["told"] else "untold"
        text = f"{line['quantity']:7}{told:7}{line['source']:10}{line['rows']:5} {line['median_pct']:7}"
        text += f" {line['p90_pct']:7} {line['bias_pct']:7} {line['inside_80_pct']:12} {line['width_pct']:5}"
        if "null_median_pct" in line:
            text += f"  {line['null_median_pct']:5} {line['null_p90_pct']:6}"
        if "mean_of_source_medians_pct" in line:
            text += f"  mean of source medians {line['mean_of_source_medians_pct']}"
        print(text)


def _report_unsupported(what: str, reasons: Sequence[str]) -> None:
    if reasons:
        print(f"{len(reasons)} {what} unsupported:", *reasons, sep="\n  ")


def _commit() -> str:
    """The engine's commit; an uncommitted engine is refused."""
    changed = subprocess.run(
        ["git", "status", "--porcelain", "sizing"], check=True, capture_output=True, text=True
    )
    if changed.stdout.strip():
        raise SystemExit("--log: commit the engine first, for the log names the commit that predicted")
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


if __name__ == "__main__":
    main()
