"""When nothing may be decided: what was not seen, phases, cool-down, short windows.

Every gate answers with the sentence that says why it is closed, empty if it is open.
"""

from rightsizer.domain.reading import Phase, Reading
from rightsizer.estimate.parameters import Parameters
from rightsizer.resize.types import History, Limits, Running
from rightsizer.units import format_duration

__all__ = ["may_grow", "may_resize", "may_shrink", "missing_data"]


def missing_data(r: Reading, p: Parameters) -> str:
    """What makes the reading no reading at all: it is stale, sparse, or nobody knows whether it is."""
    if not r.window_s:
        return "unknown: nothing was measured"
    if r.age_s is None:
        return "unknown: the age of the newest sample is not known"
    if r.age_s > p.stale_s:
        return f"unknown: the newest sample is {format_duration(r.age_s)} old"
    return _too_few_samples(r, p)


def _too_few_samples(r: Reading, p: Parameters) -> str:
    if r.coverage is None:
        return "unknown: how many samples are missing is not known"
    if r.coverage < p.least_coverage:
        return f"unknown: only {r.coverage:.0%} of the expected samples are there"
    if r.samples is not None and r.samples < p.least_samples:
        return f"unknown: {r.samples} samples are too few"
    return ""


def may_resize(
    r: Reading, running: Running, limits: Limits, history: History, *, now_s: float, parameters: Parameters
) -> str:
    """Why this job is not resized now, whatever its rate; empty if it may be."""
    for blocked in (
        _not_training(r, running, limits),
        _cooling_down(limits, history, now_s=now_s),
        _measured(r, running, parameters),
        _work_left_known(running, limits),
    ):
        if blocked:
            return blocked
    return ""


def may_shrink(r: Reading, limits: Limits, p: Parameters) -> str:
    """Shrinking looks back over whole checkpoint intervals."""
    wanted_s = max(limits.least_window_s, p.window_checkpoints * (limits.checkpoint_interval_s or 0.0))
    return _long_enough(r, wanted_s)


def may_grow(r: Reading, limits: Limits, p: Parameters) -> str:
    """Growing looks back less: what is late gets later while one looks."""
    shorter_s = min(p.grow_window_s, limits.checkpoint_interval_s or 0.0)
    return _long_enough(r, max(limits.least_window_s, shorter_s))


def _long_enough(r: Reading, wanted_s: float) -> str:
    if (r.window_s or 0.0) >= wanted_s * (1.0 - 1e-9):
        return ""
    return f"waits for a window of {format_duration(wanted_s)} ({format_duration(r.window_s or 0.0)} so far)"


def _not_training(r: Reading, running: Running, limits: Limits) -> str:
    if r.phase is not Phase.TRAINING:
        return f"its phase is {r.phase}, not training"
    if running.trained_s is None:
        return "unknown: when training began at this size is not known"
    if running.trained_s < limits.warm_up_s:
        return f"warms up ({format_duration(running.trained_s)} of {format_duration(limits.warm_up_s)})"
    return ""


def _cooling_down(limits: Limits, history: History, *, now_s: float) -> str:
    if history.last_resize_s is None:
        return ""
    since_s = now_s - history.last_resize_s
    if since_s >= limits.cool_down_s:
        return ""
    left_s = limits.cool_down_s - max(since_s, 0.0)
    return f"cools down for {format_duration(left_s)} after its last resize"


def _measured(r: Reading, running: Running, p: Parameters) -> str:
    """The rate must be this size's, over enough steps."""
    if r.gpus is None or r.gpus != running.gpus:
        measured = "an unknown number" if r.gpus is None else r.gpus
        return f"unknown: it runs on {running.gpus} GPUs, and the rate was measured on {measured}"
    if running.trained_s is not None and running.trained_s < (r.window_s or 0.0):
        return "part of the window is from before this size trained"
    if not r.tokens_per_s or r.window_steps is None:
        return "unknown: no rate was measured"
    if r.window_steps < p.least_steps:
        return f"unknown: {r.window_steps} steps are too few for a rate"
    return ""


def _work_left_known(running: Running, limits: Limits) -> str:
    """What is left to do, and that it is kept over a restart."""
    if running.tokens_left is None or not running.tokens_left >= 0:
        return "unknown: how much is left to train is not known"
    if limits.checkpoint_interval_s is None:
        return "writes no checkpoints, so a resize would start it over"
    return ""
