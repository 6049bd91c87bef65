"""Errors of the engine by source and overall, without the framework's name too, the null model's, the goals.

    python -m bench.accuracy [REFERENCE] [--json FILE] [--saved]

Step times are cross-validated here by source (a minute on one core), or with --saved taken from what
bench/fit/step_time.py, which does the same, wrote to bench/results/step_time.csv. Memory's residuals come
from bench/results/memory.csv, which bench/fit/memory.py writes.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bench.accuracy.goals import decisions, row_goals, table_goals
from bench.fit.step_time import at, errors, fit, left_out, null_errors, table
from bench.fit.uncertainty import deviation_left_out
from bench.fitting import arguments, read, runs, summary
from bench.memory_rows import load as load_memory_rows
from bench.reference import reference
from bench.results import RESULTS, read_rows, write_json
from bench.step_rows import StepRows, load

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.familiarity import measured
from rightsizer_engine.estimate import prediction
from rightsizer_engine.estimate.memory import device_memory as memory_of
from rightsizer_engine.estimate.parameters import load_step_time
from rightsizer_engine.estimate.uncertainty import Z_80


def step_errors(folder: Path) -> tuple[StepRows, dict[str, Array]]:
    """ln(predicted / measured) of rows: all seen, source left out, framework withheld too, null model.

    Inputs from the sources' notes are used in all columns but `untold`.
    """
    start, rows, untold = load_step_time(), load(folder, notes=True), load(folder, forget=True)
    forgotten, withheld = load(folder, notes=True, forget=True), load(folder, notes=True, blind=True)
    linear = fit(rows, start)
    (out, kept, blind, plain), _ = left_out(rows, [forgotten, rows, withheld, untold], linear, start)
    columns = {"seen": errors(rows, at(start, linear.point)), "left_out": out, "profile_kept": kept}
    columns |= {"blind": blind, "untold": plain}
    return rows, columns | {"null": null_errors(rows)}


def saved_errors(folder: Path) -> tuple[StepRows, dict[str, Array]]:
    """The errors that the last fit wrote; NaN for rows that are not judged."""
    rows = load(folder, notes=True)
    saved = read_rows("step_time")
    names, by_id = [name for name in saved[0] if name != "id"], {line["id"]: line for line in saved}
    nothing = dict.fromkeys(names, np.nan)
    lines = [by_id.get(row["id"], nothing) for row in rows.rows]
    return rows, {name: np.asarray([line[name] for line in lines]) for name in names}


def overall(source: Array, error: Array) -> dict[str, float]:
    """The pooled figures without the one large sweep, and the mean of the sources' medians."""
    rest = summary(error[source != "VTRAIN"])
    medians = [summary(error[source == name])["median_pct"] for name in np.unique(source)]
    return rest | {"mean_of_source_medians_pct": round(float(np.mean(medians)), 2)}


def coverage(rows: StepRows, error: Array) -> dict[str, Any]:
    """Percent of left-out rows inside the 80 % interval, by wave, and its median half width.

    The interval's width leaves out the row's own source.
    """
    half = Z_80 * deviation_left_out(rows.cases, rows.source, measured(), "step_time")
    inside, pooled = np.abs(error) <= half, rows.judged & (rows.source != "VTRAIN")
    groups = {f"wave {w}": rows.wave == w for w in np.unique(rows.wave)} | {"vTrain": rows.source == "VTRAIN"}
    held = {
        name: round(100 * float(np.mean(inside[of & (rows.judged if name == "vTrain" else pooled)])), 1)
        for name, of in groups.items()
    }
    width = round(100 * float(np.median(half[pooled])), 1)
    return {"coverage_of_80_pct": held, "median_half_width_pct": width}


def without_flags(folder: Path, rows: StepRows, error: Array) -> dict[str, float]:
    """The pooled figures without the rows that the table itself makes doubtful."""
    flagged = {row["id"] for row in read(folder, "flags.csv")}
    kept = np.asarray([row["id"] not in flagged for row in rows.rows]) & rows.judged
    return overall(rows.source[kept], error[kept])


def memory(waves: Mapping[str, str]) -> dict[str, Any]:
    """The memory fit's residuals by source and by wave, if they exist."""
    rows = read_rows("memory")
    if not rows:
        return {}
    source = np.asarray([row["id"].rsplit("-", 1)[0] for row in rows])
    found: dict[str, Any] = {}
    wave = np.asarray([waves.get(row["id"], "") for row in rows])
    groups = {"ALL": wave != "none"} | {f"WAVE {name}": wave == name for name in np.unique(wave)}
    for column in ("seen_notes", "left_out", "left_out_notes", "profile_kept_notes", "blind_notes"):
        error = np.asarray([row[column] for row in rows])
        found[column] = {str(name): summary(error[source == name]) for name in np.unique(source)}
        found[column] |= {name: overall(source[of], error[of]) for name, of in groups.items()}
    return found


def fits(folder: Path) -> dict[str, Any]:
    """The memory verdicts on published runs, all of which ran: how many fit, may not fit, do not fit.

    The parameters are the shipped ones; inputs from the runs' notes are used. `fuller` runs get the verdict
    "fits", and filled more than MEMORY_LIMIT of their GPU by their own figure.
    """
    rows = load_memory_rows(folder, notes=True)
    room, found = rows.cases.gpu.memory_bytes, prediction.fit(rows.cases)
    sure = np.asarray(found.fits)
    possible = np.asarray(memory_of.may_fit(found.memory, room, found.sigma))
    fuller = sure & (rows.measured_bytes > memory_of.MEMORY_LIMIT * room)
    return {
        "runs": len(rows.rows),
        "fits": int(sure.sum()),
        "may_not_fit": int((possible & ~sure).sum()),
        "does_not_fit": int((~possible).sum()),
        "fuller": [rows.rows[index]["id"] for index in np.flatnonzero(fuller)],
    }


def report(folder: Path, *, saved: bool = False) -> dict[str, Any]:
    """All figures as one document."""
    rows, columns = saved_errors(folder) if saved else step_errors(folder)
    kept = {name: error[rows.judged] for name, error in columns.items()}
    source = rows.source[rows.judged]
    print(table(source, rows.wave[rows.judged], kept))
    if not saved:
        other = ~rows.judged
        incomplete = {name: error[other] for name, error in columns.items()}
        print(
            "\nrows that do not state recompute:\n" + table(rows.source[other], rows.wave[other], incomplete)
        )
    goals = [*row_goals(rows, columns["seen"], columns["left_out"]), *table_goals()]
    _print_goals(goals)
    chosen = [decisions(rows, columns["left_out"], single_node=single) for single in (False, True)]
    for choice in chosen:
        print(choice)
    waves = {
        str(w): {name: overall(source[of], error[of]) for name, error in kept.items()}
        for w in np.unique(rows.wave)
        if (of := rows.wave[rows.judged] == w).any()
    }
    by_source = {
        name: {str(s): summary(error[source == s]) for s in np.unique(source)} for name, error in kept.items()
    }
    return {
        "step_time": {
            "usable_rows": rows.usable,
            "supported_pct": round(100 * float(rows.judged.sum()) / rows.usable, 2),
            **coverage(rows, columns["left_out"]),
            "overall_without_vtrain": {name: overall(source, error) for name, error in kept.items()},
            "left_out_without_flagged_rows": without_flags(folder, rows, columns["left_out"]),
            "by_wave_without_vtrain": waves,
            "by_source": by_source,
            "goals": [dataclasses.asdict(goal) | {"met": goal.met} for goal in goals],
            "decisions": [dataclasses.asdict(choice) for choice in chosen],
        },
        "memory": memory({row["id"]: row["wave"] for row in runs(folder)}),
        "fits": fits(folder),
    }


def _print_goals(goals: list[Any]) -> None:
    print(f"\n{'goal (mean |error|, %)':28} {'rows':>5} {'seen':>7} {'left out':>9} {'allowed':>8}")
    for goal in goals:
        verdict = "met" if goal.met else "missed"
        figures = f"{goal.rows:5d} {goal.seen_pct:7.1f} {goal.left_out_pct:9.1f} {goal.allowed_pct:8.1f}"
        print(f"{goal.name:28} {figures}  {verdict}")


def _print_memory(found: Mapping[str, Any]) -> None:
    for column, sources in found.items():
        figures = sources["ALL"]
        print(
            f"memory {column:9} median {figures['median_pct']:.1f} p90 {figures['p90_pct']:.1f} "
            f"mean of source medians {figures['mean_of_source_medians_pct']:.1f} (n {figures['n']})"
        )


def main() -> None:
    """Print the tables, write the document."""
    parser = arguments(__doc__, dated=False)
    parser.add_argument("--json", default=str(RESULTS / "accuracy.json"))
    parser.add_argument("--saved", action="store_true", help="take the last fit's residuals")
    given = parser.parse_args()
    found = report(reference(given.reference), saved=given.saved)
    steps = found["step_time"]
    print(f"\nsupported: {steps['supported_pct']} % of {steps['usable_rows']} usable rows")
    print(f"80 % interval: {steps['coverage_of_80_pct']}, half width {steps['median_half_width_pct']} %")
    for name, figures in steps["overall_without_vtrain"].items():
        print(f"{name:9} {figures}")
    print(f"left out, without flagged rows: {steps['left_out_without_flagged_rows']}")
    _print_memory(found["memory"])
    print(f"of published runs, which all ran: {found['fits']}")
    write_json(Path(given.json), found)


if __name__ == "__main__":
    main()
