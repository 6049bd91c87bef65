"""Preconditions of a resize: fresh data, training phase, cool-down, a long enough window.

Every check returns what blocks a resize: `Missing` data, or a reason in words; None or "" if nothing does.
"""

import math
from collections.abc import Iterator

from rightsizer_engine.domain.reading import Missing, Phase, Reading
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.resize.types import History, Limits, Running
from rightsizer_engine.units import format_duration


def missing_data(r: Reading, p: Parameters) -> Missing | None:
    """Why the reading is unusable: missing, stale, or with too few samples; None if it is usable."""
    if not r.window_s:
        return Missing(reason="nothing was measured")
    if r.age_s is None:
        return Missing(reason="the newest sample has no known age")
    if r.age_s > p.stale_s:
        return Missing(reason=f"the newest sample is {format_duration(r.age_s)} old")
    return _too_few_samples(r, p)


def _too_few_samples(r: Reading, p: Parameters) -> Missing | None:
    if r.coverage is None:
        return Missing(reason="the number of missing samples is not known")
    if r.coverage < p.least_coverage:
        return Missing(reason=f"only {r.coverage:.0%} of the expected samples arrived")
    if r.samples is not None and r.samples < p.least_samples:
        return Missing(reason=f"{r.samples} samples are too few")
    return None


def unusable_input(running: Running, limits: Limits, history: History, *, now_s: float) -> Missing | None:
    """Which number of the job, its limits or its history is NaN, infinite or out of range; None if none."""
    for name, value, least in _numbers(running, limits, history, now_s):
        if value is not None and not least <= value < math.inf:
            return Missing(reason=f"{name} is {value:g}")
    if not 0.0 < running.confidence < 1.0:
        return Missing(reason=f"the deadline's confidence is {running.confidence:g}")
    return None


def _numbers(
    running: Running, limits: Limits, history: History, now_s: float
) -> Iterator[tuple[str, float | None, float]]:
    """Every number with its name and its least value. A finite deadline may have passed."""
    yield "the number of GPUs", running.gpus, 1
    yield "the remaining work in tokens", running.tokens_left, 0.0
    yield "the time to the deadline", running.deadline_left_s, -_LONGEST_S
    yield "the time since training began", running.trained_s, 0.0
    for name in _DURATIONS:
        yield name, getattr(limits, name), 0.0
    yield "the fewest GPUs", limits.min_gpus, 0
    yield "the most GPUs", limits.max_gpus, 0
    yield "the number of free GPUs", limits.free_gpus, 0
    yield "the time of the last resize", history.last_resize_s, -_LONGEST_S
    yield "the present time", now_s, -_LONGEST_S


_DURATIONS = ("cool_down_s", "checkpoint_interval_s", "restart_s", "warm_up_s", "least_window_s")
_LONGEST_S = 1e12
"""About 30,000 years: no deadline and no run is further away."""


def may_resize(
    r: Reading, running: Running, limits: Limits, history: History, *, now_s: float, parameters: Parameters
) -> Missing | str:
    """Why this job must not be resized now, at any rate; empty if it may be."""
    for blocked in (
        _not_training(r, running, limits),
        _cooling_down(limits, history, now_s=now_s),
        _measured(r, running, parameters),
        _work_left_known(r, running, limits),
    ):
        if blocked:
            return blocked
    return ""


def may_shrink(r: Reading, limits: Limits, history: History, p: Parameters) -> str:
    """Shrinking needs a window of whole checkpoint intervals."""
    required_s = max(limits.least_window_s, p.window_checkpoints * (limits.checkpoint_interval_s or 0.0))
    return _long_enough(r, _at_first_look(limits, history, required_s))


def may_grow(r: Reading, limits: Limits, history: History, p: Parameters) -> str:
    """Growing needs a shorter window, since a late job gets later while it waits."""
    shorter_s = min(p.grow_window_s, limits.checkpoint_interval_s or 0.0)
    return _long_enough(r, _at_first_look(limits, history, max(limits.least_window_s, shorter_s)))


def _at_first_look(limits: Limits, history: History, otherwise_s: float) -> float:
    """The window before a staged job's first resize: no longer than its first look less the warm-up."""
    if limits.look_s is None or history.last_resize_s is not None:
        return otherwise_s
    return min(otherwise_s, max(0.0, limits.look_s - limits.warm_up_s))


def _long_enough(r: Reading, required_s: float) -> str:
    if (r.window_s or 0.0) >= required_s * (1.0 - 1e-9):
        return ""
    return f"waiting for a {format_duration(required_s)} window ({format_duration(r.window_s or 0.0)} so far)"


def _not_training(r: Reading, running: Running, limits: Limits) -> Missing | str:
    if r.phase is not Phase.TRAINING:
        return f"phase is {r.phase}, not training"
    if running.trained_s is None:
        return Missing(reason="the start of training at this size is not known")
    if running.trained_s < limits.warm_up_s:
        return f"warming up ({format_duration(running.trained_s)} of {format_duration(limits.warm_up_s)})"
    return ""


def _cooling_down(limits: Limits, history: History, *, now_s: float) -> str:
    if history.last_resize_s is None:
        return ""
    since_s = now_s - history.last_resize_s
    if since_s >= limits.cool_down_s:
        return ""
    left_s = limits.cool_down_s - max(since_s, 0.0)
    return f"cooling down after the last resize, {format_duration(left_s)} left"


def _measured(r: Reading, running: Running, p: Parameters) -> Missing | str:
    """The rate must have been measured at this size, over enough steps."""
    if r.gpus is None or r.gpus != running.gpus:
        measured = "an unknown number" if r.gpus is None else r.gpus
        return Missing(reason=f"runs on {running.gpus} GPUs, but the rate was measured on {measured}")
    if running.trained_s is not None and running.trained_s < (r.window_s or 0.0):
        return "part of the window precedes training at this size"
    if not r.tokens_per_s or r.window_steps is None:
        return Missing(reason="no rate was measured")
    if r.window_steps < p.least_steps:
        return Missing(reason=f"{r.window_steps} steps are too few for a rate")
    return ""


def _work_left_known(r: Reading, running: Running, limits: Limits) -> Missing | str:
    """The remaining work must be known, have an end, and survive a restart."""
    if running.tokens_left is None:
        return Missing(reason="the remaining tokens are not known")
    if running.tokens_left > (r.tokens_per_s or 0.0) * _LONGEST_S:
        return Missing(reason="at the measured rate the run never ends")
    if limits.checkpoint_interval_s is None:
        return "writes no checkpoints, so a resize would lose all progress"
    return ""
