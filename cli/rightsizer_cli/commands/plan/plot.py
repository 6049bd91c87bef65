"""`--plot`: cost against time over GPU counts, with the chosen point and the deadline."""

import importlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rightsizer_cli.files import write_whole
from rightsizer_cli.usage_errors import OptionError

if TYPE_CHECKING:
    from rightsizer.search.plan import CurvePoint, Plan

__all__ = ["check_plot", "draw_plan", "save_figure"]

_KINDS = {".svg": "svg", ".png": "png"}


def check_plot(path: Path, *, find: Callable[[str], Any] = importlib.import_module) -> None:
    """Refuse what could not be drawn before anything is computed; `find` imports by name."""
    if path.suffix.lower() not in _KINDS:
        raise OptionError("--plot", value=str(path), remedy="must end in .svg or .png")
    try:
        find("matplotlib")
    except ImportError:
        remedy = "needs matplotlib: pip install 'rightsizer[plot]'"
        raise OptionError("--plot", value=str(path), remedy=remedy) from None


def draw_plan(plan: "Plan", path: Path) -> None:
    """Write the figure; whole or not at all."""
    save_figure(lambda: _figure(plan), path)


def save_figure(drawn: Callable[[], Any], path: Path) -> None:
    """Write what `drawn` draws as the path's ending says; whole or not at all."""
    import matplotlib as mpl

    # text stays text in SVG, and nothing in the file depends on the day
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rightsizer", "font.size": 10}):
        figure = drawn()
        kind = _KINDS[path.suffix.lower()]
        metadata = {"Date": None} if kind == "svg" else None
        write_whole(
            path,
            lambda draft: figure.savefig(draft, format=kind, dpi=150, metadata=metadata),
            field="--plot",
        )


def _figure(plan: "Plan") -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    priced = plan.option.cost_usd is not None
    scale, unit = (86_400.0, "days") if plan.option.finish_s > 3 * 86_400 else (3_600.0, "hours")
    for name, points in _by_gpu(plan).items():
        _curve(axes, name, points, scale=scale, priced=priced)
    chosen = plan.option
    axes.plot(
        chosen.finish_at_confidence_s / scale,
        chosen.gpus if chosen.cost_usd is None else chosen.cost_usd,
        marker="*", markersize=16, color="black", linestyle="none", zorder=3,
        label=f"chosen: {chosen.gpus} {chosen.cluster.gpu.name}",
    )  # fmt: skip
    if plan.request.deadline_s is not None:
        axes.axvline(plan.request.deadline_s / scale, color="tab:red", linestyle="--", label="deadline")
    if plan.request.max_usd is not None and priced:
        axes.axhline(plan.request.max_usd, color="tab:orange", linestyle=":", label="budget")
    confidence = f"{plan.request.confidence:.0%}"
    axes.set(
        xlabel=f"finish within ({unit}, {confidence} sure)",
        ylabel="expected cost (US dollars)" if priced else "GPUs",
        title=f"{plan.request.architecture.name}: what a later finish saves",
        xscale="log",
        yscale="log",
    )
    _plain_ticks(axes, priced=priced)
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend()
    return figure


def _curve(axes: Any, name: str, points: list["CurvePoint"], *, scale: float, priced: bool) -> None:
    x = [point.finish_at_confidence_s / scale for point in points]
    y = [point.cost_usd if priced else point.gpus for point in points]
    axes.plot(x, y, marker="o", markersize=4, linewidth=1.2, label=f"{name} (numbers: GPUs)")
    step = max(1, len(points) // 8)
    for i in range(0, len(points), step):
        axes.annotate(
            f"{points[i].gpus}",
            (x[i], y[i]),
            textcoords="offset points",
            xytext=(0, 6),
            fontsize=8,
            ha="center",
        )


def _by_gpu(plan: "Plan") -> dict[str, list["CurvePoint"]]:
    """The curve of each GPU type, fastest first; without those that have no price when the chosen one has."""
    curves = defaultdict(list)
    for point in plan.curve:
        if point.cost_usd is not None or plan.option.cost_usd is None:
            curves[point.cluster.gpu.name].append(point)
    return {name: sorted(points, key=lambda p: p.finish_at_confidence_s) for name, points in curves.items()}


def _plain_ticks(axes: Any, *, priced: bool) -> None:
    """Ticks as people write numbers: 48, not 4.8 x 10^1."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"${value:,.0f}" if priced else f"{value:g}")
    )
    axes.minorticks_off()
