"""Baselines for the policy: static requests in FIFO order, and an oracle. Pure."""

import heapq
import math
from collections.abc import Sequence

from rightsizer.fleet.trace_jobs import (
    HOUR_S,
    ReplayOutcome,
    ReplayRules,
    TraceJob,
    counts,
    missed,
    most_gpus,
    relative_s,
    timeline,
)

__all__ = ["oracle", "static"]


def static(jobs: Sequence[TraceJob], *, gpus: int) -> ReplayOutcome:
    """FIFO: every job runs on the GPUs it requested until it is done."""
    started, running, free, now_s = [], list[tuple[float, int]](), gpus, -math.inf
    for job in jobs:
        now_s = max(now_s, job.submitted_s)
        while running and (running[0][0] <= now_s or free < job.gpus):
            end_s, back = heapq.heappop(running)
            now_s, free = max(now_s, end_s), free + back
        started.append(now_s)
        heapq.heappush(running, (now_s + job.duration_s, job.gpus))
        free -= job.gpus
    finished = [start + job.duration_s for start, job in zip(started, jobs, strict=True)]
    changes = [(s, j.gpus) for s, j in zip(started, jobs, strict=True)]
    changes += [(f, -j.gpus) for f, j in zip(finished, jobs, strict=True)]
    return ReplayOutcome(
        started_s=tuple(started),
        finished_s=tuple(finished),
        gpu_hours=tuple(j.gpus * j.duration_s / HOUR_S for j in jobs),
        missed=missed(jobs, finished),
        timeline=timeline(changes),
    )


def oracle(jobs: Sequence[TraceJob], *, gpus: int, rules: ReplayRules | None = None) -> ReplayOutcome:
    """The fewest GPU-hours of each job by its true scaling curve, without queue and restart costs.

    Each job may mix two sizes (time is linear in the work done at each, so the cheapest mix lies on the lower
    hull). A job that no size finishes in time takes the fewest GPU-hours at which it is at most 10 % slower
    than at its requested size. No real scheduler can beat this bound while meeting as many deadlines.
    """
    best = [_best(job, min(gpus, most_gpus(job, rules or ReplayRules()))) for job in jobs]
    finished = [job.submitted_s + taken_s for job, (taken_s, _) in zip(jobs, best, strict=True)]
    return ReplayOutcome(
        started_s=tuple(job.submitted_s for job in jobs),
        finished_s=tuple(finished),
        gpu_hours=tuple(hours for _, hours in best),
        missed=missed(jobs, finished),
    )


_HARDLY_SLOWER = 1.1


def _best(job: TraceJob, most: int) -> tuple[float, float]:
    """Seconds and GPU-hours of the cheapest way to meet the deadline, or about the requested speed."""
    points = [(job.duration_s * relative_s(job.serial, job.gpus, n), n) for n in counts(job.gpus, most)]
    limit_s = math.inf if job.deadline_s is None else job.deadline_s - job.submitted_s
    if min(seconds for seconds, _ in points) > limit_s:
        limit_s = job.duration_s * _HARDLY_SLOWER
    options = [(seconds * n / HOUR_S, seconds) for seconds, n in points if seconds <= limit_s]
    for slow_s, few in points:
        for quick_s, many in points:
            if quick_s <= limit_s < slow_s < math.inf:
                part = (slow_s - limit_s) / (slow_s - quick_s)
                options.append(((part * quick_s * many + (1 - part) * slow_s * few) / HOUR_S, limit_s))
    hours, seconds = min(options)
    return seconds, hours
