"""The output of `advise`."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from rightsizer_cli.output.console import echo_json, show
from rightsizer_engine.resize.existing_job import Advice
from rightsizer_engine.resize.types import Action, JobSize
from rightsizer_engine.search.reasons import layout_text
from rightsizer_engine.units import format_count, format_duration, format_usd
from rightsizer_launch.running.existing_job import ExistingJob

if TYPE_CHECKING:
    from rightsizer_cli.output.documents.advice import AdviceDocument

_WORDS = {
    Action.KEEP: "keep",
    Action.GROW: "more",
    Action.SHRINK: "fewer",
    Action.RELAYOUT: "another layout",
    Action.FLAG: "look at it",
}
_MOST_SIZES = 9


def print_advice(job: ExistingJob, advice: Advice, notes: tuple[str, ...], *, as_json: bool) -> None:
    """The advice as a page or as JSON."""
    if as_json:
        echo_json(_document(job, advice, notes))
        return
    decision, present, kind = advice.decision, advice.measured.gpus, advice.option.cluster.gpu.name
    target = f"{present} {kind}"
    if decision.gpus != present:
        target = f"{decision.gpus} {kind} instead of {present}"
    show(
        f"{job.name}: {_WORDS[decision.action]}: {target}",
        f"Why: {decision.reason}",
        f"Measured {format_count(advice.measured.tokens_per_s)} tokens/s,"
        f" {advice.measured_to_predicted:.0%} of the prediction for {layout_text(advice.option.layout)};"
        f" {format_count(advice.tokens_left)} tokens left",
        _table(advice),
        *((f"Taken from: {'; '.join(notes)}",) if notes else ()),
        "Nothing was changed.",
    )


def _table(advice: Advice) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("GPUs", "tokens/s", "ends in", "GPU-hours", "cost"):
        table.add_column(name, justify="right")
    table.add_column("layout")
    for size in _near(advice):
        left_s = advice.tokens_left / size.tokens_per_s / size.goodput
        price = advice.option.cluster.price_usd_per_gpu_h
        table.add_row(
            f"{size.gpus}{' (now)' if size.gpus == advice.measured.gpus else ''}",
            format_count(size.tokens_per_s),
            format_duration(left_s),
            format_count(left_s / 3600 * size.gpus),
            format_usd(left_s / 3600 * size.gpus * price) if price else "",
            layout_text(size.layout) if size.layout else "",
        )
    return table


def _near(advice: Advice) -> tuple[JobSize, ...]:
    """The sizes nearest to the present one, and the advised one."""
    present = advice.measured.gpus
    near = sorted(advice.sizes, key=lambda size: abs(size.gpus / present - present / size.gpus))[:_MOST_SIZES]
    near += [size for size in advice.sizes if size.gpus == advice.decision.gpus and size not in near]
    return tuple(sorted(near, key=lambda size: size.gpus))


def _document(job: ExistingJob, advice: Advice, notes: tuple[str, ...]) -> "AdviceDocument":
    from rightsizer_cli.output.documents.advice import (
        AdviceDocument,
        ExistingJobDocument,
        MeasuredDocument,
        SizeDocument,
    )

    decision = advice.decision
    return AdviceDocument(
        job=ExistingJobDocument(**asdict(job)),
        action=decision.action,
        gpus=decision.gpus,
        reason=decision.reason,
        evidence=decision.evidence,
        tokens_left=advice.tokens_left,
        measured=MeasuredDocument(**asdict(advice.measured)),
        measured_to_predicted=advice.measured_to_predicted,
        assumed=notes,
        sizes=tuple(
            SizeDocument(
                gpus=size.gpus,
                tokens_per_second=size.tokens_per_s,
                goodput=size.goodput,
                layout=layout_text(size.layout) if size.layout else "",
            )
            for size in advice.sizes
        ),
    )
