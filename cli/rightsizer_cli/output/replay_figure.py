"""`simulate --plot`: GPUs in use over time, static requests against ours; what each policy costs and misses.

Bands and bars span all assumptions; lines and dots show the first.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rightsizer_cli.output.figures import save_figure
from rightsizer_cli.requests.replays import BOUND, OURS, STATIC

if TYPE_CHECKING:
    from rightsizer_cli.requests.replays import ReplayCase, ReplayComparison
    from rightsizer_engine.fleet.trace_jobs import Timeline

_COLOURS = {STATIC: "dimgray", OURS: "tab:blue", BOUND: "tab:green"}
_OTHER = "tab:brown"
_BINS = 240
_DAY_S = 86_400.0
_ROOM = 0.45
"""Free space right of the longest bar, for its figures: a share of the axis."""


def draw_replay(comparison: "ReplayComparison", path: Path) -> None:
    """Write the figure; whole or not at all."""
    save_figure(lambda: replay_figure(comparison), path)


def replay_figure(comparison: "ReplayComparison") -> Any:
    """GPUs over time above; below, GPU-hours and missed deadlines of each policy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.5), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2.4))
    first, cases = comparison.cases[0], comparison.cases
    jobs = f"{len(first.jobs):,} jobs of {comparison.trace.name}"
    figure.suptitle(f"{jobs} on {comparison.cluster_gpus:,} GPUs", fontsize=12)
    over_time = figure.add_subplot(grid[0, :])
    _over_time(over_time, comparison)
    over_time.set_title(f"lines: {first.name}", fontsize=9, loc="left", color="dimgray")
    hours = figure.add_subplot(grid[1, 0])
    _ranges(hours, cases, _hours_change, lambda value: f"{value:+.0f} %")
    hours.set_xlabel("GPU-hours against static (%)")
    missed = figure.add_subplot(grid[1, 1], sharey=hours)
    _ranges(missed, cases, lambda case, name: case.outcomes[name].missed, lambda value: f"{value:,.0f}")
    missed.set_xlabel("deadlines missed (jobs)")
    missed.tick_params(labelleft=False)
    if len(cases) > 1:
        figure.supxlabel(f"bands and bars: range over {len(cases)} assumptions; dots: the first", fontsize=9)
    return figure


def _over_time(axes: Any, comparison: "ReplayComparison") -> None:
    """The level of the first assumption as a line, the range over all as a band."""
    cases = comparison.cases
    lines = {name: [case.outcomes[name].timeline for case in cases] for name in (STATIC, OURS)}
    every = [line for timelines in lines.values() for line in timelines]
    start_s = min(line.moments_s[0] for line in every)
    end_s = max(line.moments_s[-1] for line in every)
    edges = np.linspace(start_s, max(end_s, start_s + 1.0), _BINS + 1)
    days = (edges[:-1] - start_s) / _DAY_S
    for name, timelines in lines.items():
        levels = np.array([_mean_level(line, edges) for line in timelines])
        axes.fill_between(days, levels.min(0), levels.max(0), color=_COLOURS[name], alpha=0.2, linewidth=0)
        axes.plot(days, levels[0], color=_COLOURS[name], label=name, linewidth=1.2)
    axes.axhline(comparison.cluster_gpus, color="black", linestyle=":", linewidth=1, label="the cluster")
    axes.set(xlabel="time since the first job (days)", ylabel="GPUs in use")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9)


def _ranges(
    axes: Any,
    cases: "Sequence[ReplayCase]",
    figure_of: "Callable[[ReplayCase, str], float]",
    text: Callable[[float], str],
) -> None:
    """A bar from the least to the most over all assumptions, a dot at the first, the figures at the right."""
    names = list(cases[0].outcomes)
    values = {name: [figure_of(case, name) for case in cases] for name in names}
    low = min(0.0, *(min(each) for each in values.values()))
    high = max(0.0, *(max(each) for each in values.values()))
    span = (high - low) or 1.0
    for place, (name, each) in enumerate(values.items()):
        colour = _COLOURS.get(name, _OTHER)
        axes.barh(place, max(each) - min(each), left=min(each), color=colour, alpha=0.35, height=0.5)
        axes.plot(each[0], place, marker="o", markersize=5, color=colour)
        ends = dict.fromkeys(text(value) for value in (min(each), max(each)))
        axes.text(high + 0.05 * span, place, " to ".join(ends), va="center", fontsize=8)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(low - 0.05 * span, high + _ROOM * span)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first policy on top
    axes.locator_params(axis="x", nbins=5)
    axes.grid(visible=True, axis="x", alpha=0.25)


def _hours_change(case: "ReplayCase", name: str) -> float:
    """GPU-hours against those of static requests, in percent."""
    total, static = (sum(case.outcomes[one].gpu_hours) for one in (name, STATIC))
    return 100 * (total / static - 1)


def _mean_level(line: "Timeline", edges: np.ndarray) -> np.ndarray:
    """The mean level between neighbouring edges."""
    moments, levels = np.asarray(line.moments_s), np.asarray(line.gpus, dtype=float)
    area = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(moments))])
    total = np.interp(edges, moments, area)
    return np.asarray(np.diff(total) / np.diff(edges))
