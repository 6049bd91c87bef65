"""The output of `estimate` for one layout, whether it fits or not."""

from pathlib import Path

from rich.text import Text

from rightsizer_api import reporting
from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import measured_lines, option_tables, request_line
from rightsizer_cli.requests.flags import HardwareFlags, JobFlags, LayoutFlags
from rightsizer_cli.requests.one_layout import is_whole_run, priced
from rightsizer_engine.estimate.memory.device_memory import Verdict
from rightsizer_engine.search.explain import evidence_text, familiarity_of
from rightsizer_engine.search.reasons import gpus_text, layout_text
from rightsizer_engine.search.types import Plan
from rightsizer_engine.units import format_bytes, format_count, format_duration

_RUN_FIELDS = (
    "steps",
    "finish_seconds",
    "finish_at_confidence_seconds",
    "interval",
    "cost_usd",
    "energy_kwh",
)


def print_estimate(
    file: Path | None,
    job: JobFlags,
    hardware: HardwareFlags,
    flags: LayoutFlags,
    *,
    as_json: bool,
    ignore: bool = False,
) -> None:
    """Predict one layout and print it; without --tokens, only the figures of a step."""
    whole_run = is_whole_run(file, job)
    found = priced(file, job, hardware, flags, ignore=ignore)
    request, option, fits = found.request, found.option, found.fits
    verdict = (
        f"{gpus_text(option)}, {layout_text(option.layout)}: {format_duration(option.step_s)} a step,"
        f" {format_count(option.tokens_per_s / option.gpus)} tokens/s a GPU,"
        f" {'' if fits is Verdict.FITS else f'{fits}: '}{format_bytes(option.device_bytes)} a GPU"
    )
    if as_json:
        result = Plan(request=request, option=option, runners_up=(), reasons=(), binding="layout", curve=(),
                      layouts_evaluated=1)  # fmt: skip
        unknown = {} if whole_run else dict.fromkeys(_RUN_FIELDS)
        report = reporting.report(result).model_copy(
            update={"feasible": fits is not Verdict.DOES_NOT_FIT, "verdict": verdict} | unknown
        )
        echo_json(report.model_dump(mode="json", by_alias=True))
        return
    style = {Verdict.FITS: "bold green", Verdict.TIGHT: "bold yellow"}.get(fits, "bold red")
    show(
        Text(verdict, style=style),
        request_line(request, whole_run=whole_run),
        *option_tables(option, whole_run=whole_run),
        Text(f"Measured like this: {evidence_text(familiarity_of(request, option))}"),
        *measured_lines(request, option),
    )
