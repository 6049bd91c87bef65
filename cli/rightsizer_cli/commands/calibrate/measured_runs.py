"""`calibrate`: add measured runs to the calibration file, and show the new factors."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from rightsizer_api.untrusted_text import read_text
from rightsizer_cli.commands.estimate.table import read_rows
from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import table
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.estimate.evidence import Calibration, LayoutFamily
from rightsizer_engine.published.rows import case_from_row
from rightsizer_engine.search.calibrate import CorrectionFactors, calibration, correction_factors
from rightsizer_engine.values import immutable
from rightsizer_launch.running.calibration import add, default_path, read, report_observations, write

GIB = 2.0**30
ASSUMED_STEPS = 20
"""Steps behind a row's step_time_s where the table has no column `steps`: a guess."""

FAMILIES = {
    LayoutFamily.DATA: "data",
    LayoutFamily.SHARDED: "sharded",
    LayoutFamily.TENSOR: "tensor, context",
    LayoutFamily.PIPELINE: "pipeline",
    LayoutFamily.EXPERT: "experts",
}


@immutable
class CalibrationUpdate:
    """The calibration in `file` before and after; `added` counts the new runs."""

    file: Path
    before: Calibration
    after: Calibration
    added: int
    skipped: tuple[str, ...] = ()


def update_calibration(
    file: Path | None, reports: Sequence[Path], runs: Path | None, *, reset: bool
) -> CalibrationUpdate:
    """Add the runs of reports and of a table to a file (the default: the user's), or reset it.

    Invalid input changes nothing.
    """
    path, field = file or default_path(), "--file" if file else "calibration"
    if path is None:
        raise OptionError("--file", value="", remedy="RIGHTSIZER_CALIBRATION is empty; name a file")
    before = () if reset else read(path, field=field)
    new = [one for report in reports for one in _reported(report)]
    skipped: tuple[str, ...] = ()
    if runs is not None:
        rows = read_rows(read_text(runs, field="--runs"), path=str(runs))
        measured, skipped = row_observations(rows, name=runs.name)
        new += measured
        if not measured:
            raise OptionError("--runs", value=str(runs), remedy=f"has no measured run: {skipped[0]}")
    if reset:
        write((), path, field=field)
        return CalibrationUpdate(file=path, before=Calibration(), after=Calibration(), added=0)
    kept = add(new, path, field=field) if new else before
    known = {one.run for one in before}
    return CalibrationUpdate(
        file=path,
        before=calibration(before),
        after=calibration(kept),
        added=len({one.run for one in new} - known),
        skipped=skipped,
    )


def _reported(path: Path) -> tuple[Observation, ...]:
    text = read_text(path, field="REPORT.json")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError("REPORT.json", value=str(path), remedy=f"is not JSON: {error}") from None
    observations = report_observations(document, name=str(path))
    if not observations:
        raise OptionError("REPORT.json", value=str(path), remedy="has no measured steps; too short a run")
    return observations


def row_observations(
    rows: Iterable[dict[str, str]], *, name: str
) -> tuple[list[Observation], tuple[str, ...]]:
    """The measured rows of a table, and why the others are skipped."""
    observations, skipped = [], []
    for row in rows:
        step_s, peak_gib = _positive(row.get("step_time_s")), _positive(row.get("peak_memory_gib"))
        if not step_s and not peak_gib:
            skipped.append(f"{row['id']}: neither step_time_s nor peak_memory_gib")
            continue
        try:
            case = case_from_row(row)
        except RightsizerError as error:
            skipped.append(f"{row['id']}: {error}")
            continue
        steps = int(_positive(row.get("steps"))) or ASSUMED_STEPS
        observations.append(
            Observation(
                run=f"{name}:{row['id']}",
                case=case,
                steps=steps if step_s else 0,
                step_s=step_s,
                allocated_bytes=peak_gib * GIB,
            )
        )
    return observations, tuple(skipped)


def _positive(text: str | None) -> float:
    """The number in a cell; 0 where there is none."""
    try:
        value = float(text or "nan")
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def print_update(update: CalibrationUpdate, *, as_json: bool) -> None:
    """Print the measured ratios and the correction factors before and after."""
    after = correction_factors(update.after)
    if as_json:
        from rightsizer_cli.commands.calibrate.document import CalibrationDocument, StackDocument

        stacks = (StackDocument(**asdict(one) | {"family": FAMILIES[one.family]}) for one in after)
        kept = len(update.after.evidence)
        echo_json(
            CalibrationDocument(file=str(update.file), runs=kept, added=update.added, stacks=tuple(stacks))
        )
        return
    kept = len(update.after.evidence)
    show(f"{kept} measured run{'' if kept == 1 else 's'} in {update.file}, {update.added} new")
    if update.skipped:
        show(f"{len(update.skipped)} rows skipped; the first: {update.skipped[0]}")
    if kept:
        show(_table(after, correction_factors(update.before, update.after.evidence)))
        show("step, memory: measured / predicted; applied: the correction of similar runs.")


def _table(after: Sequence[CorrectionFactors], before: Sequence[CorrectionFactors]) -> Table:
    grid = table("framework", "GPU", "layouts", ">runs", ">steps", ">step", ">applied", ">memory", ">applied")
    for now, then in zip(after, before, strict=True):
        grid.add_row(
            now.framework,
            now.gpu,
            FAMILIES[now.family],
            str(now.runs),
            f"{now.steps:,}",
            _ratio(now.step_ratio),
            _change(then.step_factor, now.step_factor),
            _ratio(now.memory_ratio),
            _change(then.memory_factor, now.memory_factor),
        )
    return grid


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _change(before: float, after: float) -> str:
    same = abs(after - before) < 5e-3
    return f"x {after:.2f}" if same else f"{before:.2f} -> {after:.2f}"
