"""The output of `calibrate`: the measured ratios, and the correction factors before and after."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.table import Table

from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import table
from rightsizer_cli.requests.measured_runs import CalibrationUpdate
from rightsizer_engine.estimate.evidence import LayoutFamily
from rightsizer_engine.search.calibrate import CorrectionFactors, correction_factors

_FAMILIES = {
    LayoutFamily.DATA: "data",
    LayoutFamily.SHARDED: "sharded",
    LayoutFamily.TENSOR: "tensor, context",
    LayoutFamily.PIPELINE: "pipeline",
    LayoutFamily.EXPERT: "experts",
}


def print_update(update: CalibrationUpdate, *, as_json: bool) -> None:
    """Print the measured ratios and the correction factors before and after."""
    after = correction_factors(update.after)
    if as_json:
        from rightsizer_cli.output.documents.calibration import CalibrationDocument, StackDocument

        stacks = (StackDocument(**asdict(one) | {"family": _FAMILIES[one.family]}) for one in after)
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
            _FAMILIES[now.family],
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
