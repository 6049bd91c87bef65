"""`simulate --plot`: GPUs in use over time, static requests against ours; GPU-hours of all policies."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rightsizer_cli.commands.simulate.comparison import BOUND, OURS, STATIC
from rightsizer_cli.figures import save_figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rightsizer.fleet.trace_jobs import ReplayOutcome, Timeline
    from rightsizer_cli.commands.simulate.comparison import Comparison

__all__ = ["draw_replay"]

_COLOURS = {STATIC: "tab:gray", OURS: "tab:blue", BOUND: "tab:green"}
_BINS = 240
_DAY_S = 86_400.0


def draw_replay(comparison: "Comparison", path: Path) -> None:
    """Write the figure; whole or not at all."""
    save_figure(lambda: _figure(comparison), path)


def _figure(comparison: "Comparison") -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    over_time, hours = figure.subplots(1, 2, width_ratios=(3, 1))
    case = comparison.cases[0]
    lines = {name: case.outcomes[name].timeline for name in (STATIC, OURS)}
    start_s = min(line.moments_s[0] for line in lines.values())
    end_s = max(line.moments_s[-1] for line in lines.values())
    edges = np.linspace(start_s, max(end_s, start_s + 1.0), _BINS + 1)
    for name, line in lines.items():
        days = (edges[:-1] - start_s) / _DAY_S
        over_time.plot(days, _mean_level(line, edges), color=_COLOURS[name], label=name, linewidth=1.2)
    over_time.axhline(comparison.cluster_gpus, color="black", linestyle=":", linewidth=1, label="cluster")
    over_time.set(
        xlabel="days",
        ylabel="GPUs in use",
        title=f"{comparison.trace.name}: {len(case.jobs):,} jobs, {case.name}",
    )
    over_time.grid(visible=True, alpha=0.25)
    over_time.legend(loc="upper right")
    _bars(hours, case.outcomes)
    return figure


def _bars(axes: Any, outcomes: "Mapping[str, ReplayOutcome]") -> None:
    """GPU-hours under each policy, labelled with the missed deadlines."""
    for position, (name, outcome) in enumerate(outcomes.items()):
        total = sum(outcome.gpu_hours)
        axes.bar(position, total, color=_COLOURS.get(name, "tab:brown"))
        axes.annotate(f"{outcome.missed:,}\nmissed", (position, total), ha="center", va="bottom", fontsize=6)
    axes.set_xticks(range(len(outcomes)), list(outcomes), rotation=60, fontsize=7)
    axes.set(ylabel="GPU-hours", title="GPU-hours, deadlines missed")
    axes.margins(y=0.15)


def _mean_level(line: "Timeline", edges: np.ndarray) -> np.ndarray:
    """The mean level between neighbouring edges."""
    moments, levels = np.asarray(line.moments_s), np.asarray(line.gpus, dtype=float)
    area = np.concatenate([[0.0], np.cumsum(levels[:-1] * np.diff(moments))])
    total = np.interp(edges, moments, area)
    return np.asarray(np.diff(total) / np.diff(edges))
