"""A plan as a figure: fans (10, 50, 90 %) of finish and cost over GPU counts, with its sizes and limits."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rightsizer_cli.output.figures import save_figure
from rightsizer_engine.units import format_count

if TYPE_CHECKING:
    from rightsizer_engine.search.types import CurvePoint, Plan


def draw_plan(plan: "Plan", path: Path) -> None:
    """Write the figure in the format of the path's ending; whole or not at all."""
    save_figure(lambda: plan_figure(plan), path)


def plan_figure(plan: "Plan") -> Any:
    """Finish and cost over GPU counts."""
    from matplotlib.figure import Figure

    priced = plan.option.cost_usd is not None
    unit = _Unit(86_400.0, "days") if plan.option.finish_s > 3 * 86_400 else _Unit(3_600.0, "hours")
    figure = Figure(figsize=(8, 7 if priced else 4.5), layout="constrained")
    panels = figure.subplots(2 if priced else 1, sharex=True, squeeze=False)[:, 0]
    curves = _by_gpu(plan)
    for color, (name, points) in zip(_COLORS, curves.items(), strict=False):
        gpus = [point.gpus for point in points]
        ends = [tuple(end / unit.seconds for end in _ends_s(point)) for point in points]
        _fan(panels[0], gpus, ends, color, f"{name}: median, 80 % interval")
        if priced:
            spent = [
                tuple(float(point.cost_usd or 0.0) * end / point.finish_s for end in _ends_s(point))
                for point in points
            ]
            _fan(panels[1], gpus, spent, color, "")
    _mark_limits(plan, panels, unit)
    _mark_sizes(plan, panels, unit)
    title = f"{plan.request.architecture.name}, {format_count(plan.request.workload.tokens)} tokens"
    panels[0].set_title(f"{title}: time{' and cost' if priced else ''} if the size stays")
    panels[0].set_ylabel(f"time to finish ({unit.name})")
    panels[-1].set_xlabel("number of GPUs")
    _scale(panels, {point.gpus for points in curves.values() for point in points}, plan)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


class _Unit(NamedTuple):
    """The unit of the time axis."""

    seconds: float
    name: str

    def text(self, value_s: float) -> str:
        return f"{value_s / self.seconds:,.3g} {self.name}"


def _ends_s(point: "CurvePoint") -> tuple[float, float, float]:
    return point.finish_lo_s, point.finish_s, point.finish_hi_s


_COLORS = (
    "tab:blue",
    "tab:orange",
    "tab:green",
    "tab:purple",
    "tab:brown",
    "tab:pink",
    "tab:olive",
    "tab:cyan",
)


def _fan(axes: Any, gpus: list[int], ends: list[tuple[float, ...]], color: str, label: str) -> None:
    """The median over sizes, and the band from the 10 % to the 90 % point; for one size a bar."""
    low, median, high = zip(*ends, strict=True)
    if len(gpus) == 1:
        axes.vlines(gpus, low, high, color=color, alpha=0.4, linewidth=6)
    axes.fill_between(gpus, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(gpus, median, color=color, marker="o", markersize=3, linewidth=1.3, label=label or None)


def _mark_limits(plan: "Plan", panels: Any, unit: _Unit) -> None:
    request = plan.request
    if request.deadline_s is not None:
        named = f"deadline {unit.text(request.deadline_s)}"
        panels[0].axhline(request.deadline_s / unit.seconds, color="tab:red", linestyle="--", label=named)
    if request.max_usd is not None and len(panels) > 1:
        named = f"budget ${request.max_usd:,.0f}"
        panels[1].axhline(request.max_usd, color="black", linestyle=":", label=named)


def _mark_sizes(plan: "Plan", panels: Any, unit: _Unit) -> None:
    """The chosen size as a star; the likely size and the reserve as vertical lines, named in the legend."""
    chosen, staging = plan.option, plan.staging
    cost = "" if chosen.cost_usd is None else f", ${chosen.cost_usd:,.0f}"
    size = f"{'opens with' if staging else 'chosen:'} {chosen.gpus:,} {chosen.cluster.gpu.name}"
    label = f"{size}: {unit.text(chosen.finish_s)}{cost}"
    star = {"marker": "*", "markersize": 15, "color": "black", "linestyle": "none", "zorder": 3}
    panels[0].plot(chosen.gpus, chosen.finish_s / unit.seconds, label=label, **star)
    if chosen.cost_usd is not None:
        panels[1].plot(chosen.gpus, chosen.cost_usd, **star)
    if staging is None:
        return
    likely = f"{100 * staging.likely_probability:.0f} %: never more than {staging.likely_gpus:,} GPUs"
    lines = [(staging.likely_gpus, "-.", likely)] if staging.likely_gpus < staging.reserve_gpus else []
    lines.append((staging.reserve_gpus, ":", f"reserve: {staging.reserve_gpus:,} GPUs"))
    for axes in panels:
        for gpus, style, name in lines:
            named = name if axes is panels[0] else None
            axes.axvline(gpus, color="dimgray", linestyle=style, label=named)


def _by_gpu(plan: "Plan") -> dict[str, list["CurvePoint"]]:
    """The curve of each GPU type, fewest GPUs first; without unpriced ones if the chosen type has a price."""
    curves = defaultdict(list)
    for point in plan.curve:
        if point.cost_usd is not None or plan.option.cost_usd is None:
            curves[point.cluster.gpu.name].append(point)
    return {name: sorted(points, key=lambda p: p.gpus) for name, points in curves.items()}


def _scale(panels: Any, sizes: set[int], plan: "Plan") -> None:
    """GPUs and time on logarithmic axes, cost from zero; ticks as people write numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    time, gpus = panels[0], panels[-1].xaxis
    time.set(xscale="log", yscale="log")
    low, high = time.get_ylim()
    time.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if high > _WIDE * low else (1, 1.5, 2, 3, 4, 6, 8))
    )
    time.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    time.yaxis.set_minor_locator(NullLocator())
    gpus.set_minor_locator(NullLocator())
    staged = (plan.staging.likely_gpus, plan.staging.reserve_gpus) if plan.staging else ()
    gpus.set_ticks(ticks := _apart((plan.option.gpus, *staged, *sorted(sizes))), [f"{n:,}" for n in ticks])
    for costs in panels[1:]:
        costs.set_ylim(bottom=0)
        costs.set_ylabel("cost (US dollars)")
        costs.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:,.0f}"))
    for axes in panels:
        axes.grid(visible=True, alpha=0.25)


_WIDE = 8.0
"""From this ratio of the ends on, 1, 2 and 5 are ticks enough."""
_LABEL_WIDTH = 0.085
"""Room for a number of GPUs: a share of the axis."""


def _apart(sizes: Sequence[int]) -> list[int]:
    """The sizes, the first ones first, whose labels do not touch on a logarithmic axis."""
    room = _LABEL_WIDTH * math.log(max(sizes) / min(sizes))
    kept: list[int] = []
    for size in sizes:
        if all(abs(math.log(size / other)) > room for other in kept):
            kept.append(size)
    return sorted(kept)
