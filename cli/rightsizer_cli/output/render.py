"""Plans as tables: the verdict first, then its parts. Computes only shares of a total."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rightsizer_engine.search.explain import assumed_network, larger_sizes, probe_advice, verdict
from rightsizer_engine.search.reasons import calibration_text, layout_text, opening_text
from rightsizer_engine.units import format_bytes, format_count, format_duration, format_tokens, format_usd

if TYPE_CHECKING:
    from rightsizer_engine.search.types import CurvePoint, NoPlan, Option, Plan, Request

SMALLEST_SHARE = 0.005
"""Causes below this share of their total are left out of the tables (JSON has them all)."""
OPTION_COLUMNS = (">GPUs", "type", "layout", ">finish", ">at confidence", ">cost", ">memory", ">MFU")
"""The headings of options to compare; > aligns to the right."""


def plan_page(plan: "Plan") -> list[RenderableType]:
    """The output of `rightsizer plan` for a plan."""
    option = plan.option
    parts: list[RenderableType] = [
        Text(verdict(plan), style="bold green"),
        request_line(plan.request),
        *option_tables(option),
    ]
    if plan.staging:
        parts.insert(1, Text(opening_line(plan)))
    larger, runners = larger_sizes(plan), plan.runners_up
    if larger:
        parts.append(Group(Text("More GPUs", style="bold"), _sizes_table(larger)))
        runners = tuple(r for r in runners if r.cluster != option.cluster or r.gpus <= option.gpus)
    if runners:
        parts.append(Group(Text("Runners-up", style="bold"), _options_table(runners)))
    return [*parts, *map(Text, remarks(plan)), *measured_lines(plan.request, option)]


def _sizes_table(sizes: "Iterable[CurvePoint]") -> Table:
    """Sizes with their finish and cost, one a row."""
    grid = table(">GPUs", ">finish", ">at confidence", ">cost")
    for size in sizes:
        grid.add_row(
            f"{size.gpus:,}",
            format_duration(size.finish_s),
            format_duration(size.finish_at_confidence_s),
            "" if size.cost_usd is None else format_usd(size.cost_usd),
        )
    return grid


def remarks(plan: "Plan") -> list[str]:
    """The reasons for this size, and the assumptions."""
    lines = [f"Why: {reason}" for reason in plan.reasons[:1]]
    lines += [f"Assumed: {note}" for note in plan.request.notes]
    if away := plan.option.host_bytes_per_node:
        lines.append(f"Assumed: {format_bytes(away)} of host memory on each node, for states off its GPUs")
    if network := assumed_network(plan.option):
        lines.append(f"Assumed: the network between nodes ({network}); --node-shape names yours")
    if plan.request.framework_assumed:
        lines.append("No framework is named: --framework narrows the interval and may save GPUs")
    return lines


def opening_line(plan: "Plan") -> str:
    """The opening, the deadline's probability and what a job that is never resized would need; or nothing."""
    if plan.staging is None:
        return ""
    static = plan.staging.static_gpus
    never = "more than is allowed" if static is None else f"{static:,}"
    probability, asked = plan.staging.probability, plan.request.confidence
    less = f", not the {asked:.0%} asked" if probability < asked else ""
    return (
        f"{opening_text(plan.option, plan.staging)}. The deadline holds with {probability:.0%}{less};"
        f" a job that is never resized would need {never}"
    )


def measured_lines(request: "Request", option: "Option") -> list[RenderableType]:
    """The effect of calibration, if there is any; the advice to measure, where little is known."""
    effect, advice = calibration_text(request, option), probe_advice(request, option)
    lines: list[RenderableType] = [Text(f"Calibrated: {effect}")] if effect else []
    return [*lines, Text(f"Next step: {advice}", style="yellow")] if advice else lines


def no_plan_page(result: "NoPlan") -> list[RenderableType]:
    """Why there is no plan, and the nearest options."""
    parts: list[RenderableType] = [
        Text(verdict(result), style="bold red"),
        request_line(result.request),
    ]
    if result.nearest:
        parts.append(Group(Text("Nearest", style="bold"), _options_table(result.nearest)))
    return parts


def request_line(request: "Request", *, whole_run: bool = True) -> Text:
    """One line that repeats the request, so that a wrong flag is visible."""
    work = request.workload
    batch = work.global_batch_sequences * work.sequence_tokens
    parts = [
        f"{request.architecture.name} ({_parameters(request)}): {work.method.value}"
        + (f" on {format_tokens(work.tokens)} tokens" if whole_run else ""),
        f"{format_tokens(batch)} tokens a step ({work.global_batch_sequences} x {work.sequence_tokens})",
        work.precision.value,
        _framework(request),
    ]
    if request.deadline_s is not None:
        parts.append(f"within {format_duration(request.deadline_s)} at {request.confidence:.0%}")
    if request.max_usd is not None:
        parts.append(f"at most {format_usd(request.max_usd)}")
    return Text(", ".join(parts), style="dim")


def _parameters(request: "Request") -> str:
    """The network's parameters, and how many of them a token uses if that is fewer."""
    total, active = request.architecture.parameters_total, request.architecture.parameters_active
    return f"{format_count(total)} parameters" + (
        f", {format_count(active)} active" if active < total else ""
    )


def _framework(request: "Request") -> str:
    if request.framework_assumed:
        return f"{request.framework.name} (assumed)"
    return request.framework.name if request.framework.known else "unknown framework"


def option_tables(option: "Option", *, whole_run: bool = True) -> list[RenderableType]:
    """One option in full: key figures, then step time and memory by cause."""
    return [
        _facts(option, whole_run=whole_run),
        Columns(
            [
                _causes_table(
                    f"A step takes {format_duration(option.step_s)}",
                    option.step_by_cause_s,
                    format_duration,
                ),
                _causes_table(
                    f"The fullest GPU holds {format_bytes(option.device_bytes)}",
                    option.memory_by_cause_bytes,
                    format_bytes,
                ),
            ],
            padding=(0, 6),
        ),
    ]


def _causes_table(title: str, causes: Mapping[str, float], format_value: Callable[[float], str]) -> Group:
    """Parts of a total, largest first, with their shares."""
    total = sum(causes.values())
    grid = table("", ">", ">")
    for cause, value in sorted(causes.items(), key=lambda item: -abs(item[1])):
        if abs(value) >= SMALLEST_SHARE * abs(total):
            grid.add_row(cause.replace("_", " "), format_value(value), f"{value / total:.0%}")
    return Group(Text(title, style="bold"), grid)


def _options_table(options: Iterable["Option"]) -> Table:
    """Options to compare, one a row."""
    grid = table(*OPTION_COLUMNS)
    for option in options:
        grid.add_row(*option_cells(option))
    return grid


def option_cells(option: "Option") -> tuple[str, ...]:
    """An option's figures in the order of OPTION_COLUMNS."""
    return (
        str(option.gpus),
        option.cluster.gpu.name,
        layout_text(option.layout),
        format_duration(option.finish_s),
        format_duration(option.finish_at_confidence_s),
        "" if option.cost_usd is None else format_usd(option.cost_usd),
        format_bytes(option.device_bytes),
        f"{option.mfu:.0%}",
    )


def table(*headings: str) -> Table:
    """A table without frames; a heading that starts with > makes a right-aligned column."""
    named = any(heading.strip(">") for heading in headings)
    grid = Table(
        box=box.SIMPLE_HEAD if named else None,
        show_header=named,
        pad_edge=False,
        show_edge=False,
    )
    for heading in headings:
        right = heading.startswith(">")
        grid.add_column(heading.lstrip(">"), justify="right" if right else "left")
    return grid


def _facts(option: "Option", *, whole_run: bool) -> Table:
    grid = table("", "")
    for name, value in option_facts(option, whole_run=whole_run).items():
        grid.add_row(Text(name, style="bold"), value)
    return grid


def option_facts(option: "Option", *, whole_run: bool = True) -> dict[str, str]:
    """The key figures of an option, by their names."""
    step = {
        "Layout": f"{layout_text(option.layout)}; {option.layout.micro_batches} micro-batches a step,"
        f" global batch {option.global_batch_sequences} sequences",
        "Nodes": f"{option.nodes}, of {option.cluster.gpus_per_node} GPUs each"
        + (f", and {option.spare_nodes} spare" if option.spare_nodes else ""),
        "Speed": f"{format_count(option.tokens_per_s)} tokens/s"
        f" ({format_count(option.tokens_per_s / option.gpus)} a GPU), MFU {option.mfu:.1%}",
        "Memory": f"{format_bytes(option.device_bytes)} on the fullest GPU;"
        f" {format_bytes(option.memory_limit_bytes)} usable",
    }
    return step | (_run_facts(option) if whole_run else {})


def _run_facts(option: "Option") -> dict[str, str]:
    cost = "unknown price" if option.cost_usd is None else format_usd(option.cost_usd)
    return {
        "Finish": f"{format_duration(option.finish_s)} (median), 80 % interval"
        f" {format_duration(option.finish_lo_s)} to {format_duration(option.finish_hi_s)}",
        "Goodput": f"{option.goodput:.1%}{_losses(option.lost_by_cause)};"
        f" checkpoint every {format_duration(option.checkpoint_interval_s)}",
        "Cost": f"{cost}, {option.energy_kwh:,.0f} kWh",
    }


def _losses(lost: Mapping[str, float]) -> str:
    shown = [f"{cause.replace('_', ' ')} {share:.1%}" for cause, share in lost.items() if share >= 0.0005]
    return f" (lost: {', '.join(shown)})" if shown else ""
