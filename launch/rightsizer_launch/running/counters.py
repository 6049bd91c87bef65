"""GPU counters (DCGM, AMD's exporter) in the reading of a job. Pure."""

from collections.abc import Callable
from dataclasses import replace

from rightsizer_engine.domain.reading import GPU_METRICS, Reading


def with_gpu_counters(own: Reading, counters: Reading | None) -> Reading:
    """The job's own reading, its unknown GPU metrics filled from the counters.

    The two have different windows: `gpu_window_s` is that of the counters, and of the job's own metrics where
    it has some and they cover less. Age and coverage are those of the worse half.
    """
    if counters is None:
        return own
    missing = [name for name in GPU_METRICS if getattr(own, name) is None]
    filled = {name: getattr(counters, name) for name in missing}
    windows_s = [counters.window_s or 0.0]
    if len(missing) < len(GPU_METRICS):
        windows_s.append(own.window_s or 0.0)
    joined: Reading = replace(
        own,
        **filled,
        gpu_window_s=min(windows_s),
        age_s=_worst(max, own.age_s, counters.age_s),
        coverage=_worst(min, own.coverage, counters.coverage),
        queries=(*own.queries, *counters.queries),
    )
    return joined


def _worst(
    of: Callable[[tuple[float, float]], float], own: float | None, other: float | None
) -> float | None:
    """The worse of two figures; None if the job's own is unknown."""
    return own if own is None or other is None else of((own, other))
