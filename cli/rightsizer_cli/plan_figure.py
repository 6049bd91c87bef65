"""A plan as a figure: fans (10, 50, 90 %) of finish and cost over GPU counts, with its sizes and limits."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rightsizer.search.plan import CurvePoint, Plan

__all__ = ["plan_figure"]


def plan_figure(plan: "Plan") -> Any:
    """Finish and cost over GPU counts."""
    from matplotlib.figure import Figure

    priced = plan.option.cost_usd is not None
    scale, unit = (86_400.0, "days") if plan.option.finish_s > 3 * 86_400 else (3_600.0, "hours")
    figure = Figure(figsize=(8, 7 if priced else 4.5), layout="constrained")
    panels = figure.subplots(2 if priced else 1, sharex=True, squeeze=False)[:, 0]
    for color, (name, points) in zip(_COLORS, _by_gpu(plan).items(), strict=False):
        gpus = [point.gpus for point in points]
        ends = [(p.finish_lo_s / scale, p.finish_s / scale, p.finish_hi_s / scale) for p in points]
        _fan(panels[0], gpus, ends, color, f"{name}: median, 80 % interval")
        if priced:
            costs = [float(p.cost_usd or 0.0) for p in points]
            spent = [
                (c * p.finish_lo_s / p.finish_s, c, c * p.finish_hi_s / p.finish_s)
                for c, p in zip(costs, points, strict=True)
            ]
            _fan(panels[1], gpus, spent, color, "")
    _mark_limits(plan, panels, scale)
    _mark_sizes(plan, panels, scale)
    panels[0].set(
        ylabel=f"finish after ({unit})", title=f"{plan.request.architecture.name}: if the size stays"
    )
    panels[-1].set_xlabel("GPUs")
    if priced:
        panels[1].set_ylabel("cost (US dollars)")
    _plain_ticks(panels, priced=priced)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    return figure


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


def _fan(axes: Any, gpus: list[int], ends: list[tuple[float, float, float]], color: str, label: str) -> None:
    """The median over sizes, and the band from the 10 % to the 90 % point."""
    low, median, high = zip(*ends, strict=True)
    axes.fill_between(gpus, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(gpus, median, color=color, marker="o", markersize=3, linewidth=1.3, label=label or None)


def _mark_limits(plan: "Plan", panels: Any, scale: float) -> None:
    request = plan.request
    if request.deadline_s is not None:
        panels[0].axhline(request.deadline_s / scale, color="tab:red", linestyle="--", label="deadline")
    if request.max_usd is not None and len(panels) > 1:
        panels[1].axhline(request.max_usd, color="black", linestyle=":", label="budget")


def _mark_sizes(plan: "Plan", panels: Any, scale: float) -> None:
    """The chosen size as a star; the likely size and the reserve as vertical lines, named in the legend."""
    chosen, staging = plan.option, plan.staging
    opens = "opens with" if staging else "chosen:"
    label = f"{opens} {chosen.gpus:,} {chosen.cluster.gpu.name}"
    star = {"marker": "*", "markersize": 15, "color": "black", "linestyle": "none", "zorder": 3}
    panels[0].plot(chosen.gpus, chosen.finish_s / scale, label=label, **star)
    if chosen.cost_usd is not None:
        panels[1].plot(chosen.gpus, chosen.cost_usd, **star)
    if staging is None:
        return
    likely = f"{100 * staging.likely_probability:.0f} %: never more than {staging.likely_gpus:,}"
    for axes in panels:
        named = axes is panels[0]
        axes.axvline(staging.likely_gpus, color="dimgray", linestyle="-.", label=likely if named else None)
        reserve = f"reserve {staging.reserve_gpus:,}"
        axes.axvline(staging.reserve_gpus, color="dimgray", linestyle=":", label=reserve if named else None)


def _by_gpu(plan: "Plan") -> dict[str, list["CurvePoint"]]:
    """The curve of each GPU type, fewest GPUs first; without unpriced ones if the chosen type has a price."""
    curves = defaultdict(list)
    for point in plan.curve:
        if point.cost_usd is not None or plan.option.cost_usd is None:
            curves[point.cluster.gpu.name].append(point)
    return {name: sorted(points, key=lambda p: p.gpus) for name, points in curves.items()}


def _plain_ticks(panels: Any, *, priced: bool) -> None:
    """Ticks as people write numbers: 48, not 4.8 x 10^1."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    for axes in panels:
        dollars = priced and axes is panels[-1]
        axes.set(xscale="log", yscale="log")
        for axis, text in ((axes.xaxis, "{:,g}"), (axes.yaxis, "${:,.0f}" if dollars else "{:g}")):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text.format(value)))
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.25)
