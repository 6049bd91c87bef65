"""The bound of a replay: the fewest missed deadlines, and the fewest GPU-hours that meet them. Pure."""

import math
from collections.abc import Sequence

from rightsizer_engine.fleet.trace_jobs import (
    HOUR_S,
    ReplayOutcome,
    ReplayRules,
    TraceJob,
    counts,
    half,
    missed,
    most_gpus,
    relative_s,
)


def bound(jobs: Sequence[TraceJob], *, gpus: int, rules: ReplayRules | None = None) -> ReplayOutcome:
    """Each job alone on the cluster, its true scaling known, no restart costs: the fewest GPU-hours in time.

    A job may change its size at any moment for free, in any order. GPU-hours and duration are linear in the
    work done at each size, so the fewest GPU-hours by a deadline are at a mix of at most two sizes (a linear
    program with one constraint). A job that no size finishes in time takes the fewest GPU-hours of all sizes.
    So every deadline met by any policy is met here, and a job costs every policy at least what it costs here,
    if it is in time there or late here. A policy can only use fewer GPU-hours by missing more deadlines.
    """
    best = [_best(job, min(gpus, most_gpus(job, rules or ReplayRules()))) for job in jobs]
    finished = [job.submitted_s + taken_s for job, (taken_s, _) in zip(jobs, best, strict=True)]
    return ReplayOutcome(
        started_s=tuple(job.submitted_s for job in jobs),
        finished_s=tuple(finished),
        gpu_hours=tuple(hours for _, hours in best),
        missed=missed(jobs, finished),
    )


def _best(job: TraceJob, most: int) -> tuple[float, float]:
    """Seconds and GPU-hours of the cheapest way to meet the deadline, or the cheapest of all if none does."""
    sizes = sorted({half(job.gpus), *counts(job.gpus, most)})  # of every policy
    points = [(job.duration_s * relative_s(job.exponent, job.gpus, n), n) for n in sizes]
    limit_s = math.inf if job.deadline_s is None else job.deadline_s - job.submitted_s
    if min(seconds for seconds, _ in points) > limit_s:
        limit_s = math.inf
    ways = [(seconds * n / HOUR_S, seconds) for seconds, n in points if seconds <= limit_s]
    for slow_s, few in points:
        for quick_s, many in points:
            if quick_s <= limit_s < slow_s:
                part = (slow_s - limit_s) / (slow_s - quick_s)
                ways.append(((part * quick_s * many + (1 - part) * slow_s * few) / HOUR_S, limit_s))
    hours, seconds = min(ways)
    return seconds, hours
