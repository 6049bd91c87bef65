"""Divide one cluster's GPUs among several jobs: grants, waiting jobs and the reasons. Pure.

Every request first gets its minimum satisfactory share: the fewest GPUs that meet its deadline (term from
ElasticFlow, Gu et al., ASPLOS 2023). Running jobs come before waiting ones, then jobs by their latest start
time. Remaining GPUs go to jobs that are late or have no deadline, step by step to the job with the largest
speed-up per GPU-hour added.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from statistics import NormalDist

from rightsizer.estimate.parameters import Parameters, load_resize
from rightsizer.resize.types import Size
from rightsizer.units import format_duration
from rightsizer.values import immutable

__all__ = ["Allocation", "GpuGrant", "GpuRequest", "WaitingRequest", "allocate", "minimum_satisfactory_share"]


@immutable
class GpuRequest:
    """One job's request. `sizes` are its possible sizes, ascending in GPUs, within its own limits.

    `tokens_left` and `deadline_left_s` (None: no deadline) as a `Running` job's. `present_gpus` is 0 while it
    waits, since `waited_s`; a running claim is changed only if `movable`. `restart_s` is what a start, or a
    change of size, takes.
    """

    key: str
    sizes: tuple[Size, ...]
    tokens_left: float
    deadline_left_s: float | None = None
    confidence: float = 0.9
    present_gpus: int = 0
    movable: bool = True
    waited_s: float = 0.0
    restart_s: float = 0.0


@immutable
class GpuGrant:
    """What one request gets: its size, whether the deadline holds, and the reason."""

    key: str
    size: Size
    in_time: bool
    reason: str


@immutable
class WaitingRequest:
    """A request that gets nothing now: the fewest GPUs it needs, and the reason."""

    key: str
    needs_gpus: int
    reason: str


@immutable
class Allocation:
    """Grants and waiting requests by key, and the unused GPUs."""

    grants: Mapping[str, GpuGrant] = field(default_factory=dict)
    waiting: Mapping[str, WaitingRequest] = field(default_factory=dict)
    free_gpus: int = 0


@immutable
class _RankedRequest:
    """A request with its minimum satisfactory share; `late`: no size meets the deadline."""

    request: GpuRequest
    size: Size
    late: bool
    slack_s: float


def minimum_satisfactory_share(
    request: GpuRequest, parameters: Parameters | None = None
) -> tuple[Size, bool]:
    """The fewest GPUs that meet the deadline, and whether any size does.

    Without a deadline, or if no size meets it: the fewest GPUs that are about as fast as the fastest size.
    """
    p = parameters or load_resize()
    if request.deadline_left_s is not None:
        for size in request.sizes:
            if _seconds(request, size, sure=True) <= request.deadline_left_s:
                return size, True
    soonest_s = min(_seconds(request, size) for size in request.sizes)
    near = (s for s in request.sizes if _seconds(request, s) <= soonest_s * (1.0 + p.hopeless_slower))
    return next(near), request.deadline_left_s is None


def allocate(
    requests: Sequence[GpuRequest],
    *,
    gpus: int,
    overtake_after_s: float = 3600.0,
    parameters: Parameters | None = None,
) -> Allocation:
    """Divide `gpus` among claims. One that has waited `patience_s` is not overtaken by smaller ones."""
    p = parameters or load_resize()
    grants: dict[str, GpuGrant] = {}
    waiting: dict[str, WaitingRequest] = {}
    ranked_requests = sorted((_rank(request, p) for request in requests if request.sizes), key=_urgency)
    free = gpus - sum(w.request.present_gpus for w in ranked_requests)
    blocker = ""
    for ranked in ranked_requests:
        present = ranked.request.present_gpus
        size = _kept(ranked) if present and not ranked.request.movable else ranked.size
        if size.gpus > free + present or (blocker and not present):
            if present:
                size = _kept(ranked)
            else:
                waiting[ranked.request.key] = _waits(ranked, free, blocker)
                if ranked.request.waited_s >= overtake_after_s:
                    blocker = blocker or ranked.request.key
                continue
        free += present - size.gpus
        grants[ranked.request.key] = _share(ranked, size)
    if not waiting:
        free = _spread(ranked_requests, grants, free, p)
    return Allocation(grants=grants, waiting=waiting, free_gpus=free)


def _rank(request: GpuRequest, p: Parameters) -> _RankedRequest:
    size, good = minimum_satisfactory_share(request, p)
    left_s = math.inf if request.deadline_left_s is None else request.deadline_left_s
    return _RankedRequest(
        request=request, size=size, late=not good, slack_s=left_s - _seconds(request, size, sure=True)
    )


def _urgency(ranked: _RankedRequest) -> tuple[bool, bool, float, float]:
    """Running jobs first, then jobs that can meet their deadline, by their latest start time."""
    request = ranked.request
    return not request.present_gpus, ranked.late, 0.0 if ranked.late else ranked.slack_s, -request.waited_s


def _kept(ranked: _RankedRequest) -> Size:
    """The present size of a running job."""
    request = ranked.request
    return next((s for s in request.sizes if s.gpus == request.present_gpus), ranked.size)


def _seconds(request: GpuRequest, size: Size, *, sure: bool = False) -> float:
    """Seconds to the job's end with a size: the median, or the quantile at its confidence."""
    z = _quantile(request.confidence) if sure else 0.0
    start_s = 0.0 if size.gpus == request.present_gpus else request.restart_s
    return start_s + request.tokens_left / (size.tokens_per_s * size.goodput) * math.exp(z * size.sigma)


@cache
def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(confidence)


def _share(ranked: _RankedRequest, size: Size) -> GpuGrant:
    request, end_s = ranked.request, _seconds(ranked.request, size, sure=True)
    if request.deadline_left_s is None:
        return GpuGrant(
            key=request.key, size=size, in_time=True, reason="has no deadline; more GPUs hardly speed it up"
        )
    spare_s = request.deadline_left_s - end_s
    if spare_s >= 0:
        why = f"the fewest GPUs that meet the deadline, {format_duration(spare_s)} to spare"
        return GpuGrant(key=request.key, size=size, in_time=True, reason=why)
    why = f"late by {format_duration(-spare_s)}; no allowed size meets the deadline"
    return GpuGrant(key=request.key, size=size, in_time=False, reason=why)


def _waits(ranked: _RankedRequest, free: int, blocker: str) -> WaitingRequest:
    needs = ranked.size.gpus
    why = f"needs {needs} GPUs, {max(free, 0)} are free"
    if blocker and needs <= free:
        why = f"{blocker} has waited longest and goes first"
    return WaitingRequest(key=ranked.request.key, needs_gpus=needs, reason=why)


def _spread(
    ranked_requests: Sequence[_RankedRequest], grants: dict[str, GpuGrant], free: int, p: Parameters
) -> int:
    """Give the remaining GPUs to late jobs and jobs without a deadline; return those still free."""
    able = [w for w in ranked_requests if (w.late or w.request.deadline_left_s is None) and w.request.movable]
    while free > 0:
        steps = [s for s in (_step(w, grants[w.request.key], free) for w in able) if s is not None]
        gain, ranked, size = max(steps, key=lambda step: step[0], default=(0.0, None, None))
        if ranked is None or size is None or gain < p.least_spare_gain:
            return free
        grant = grants[ranked.request.key]
        free -= size.gpus - grant.size.gpus
        why = f"{grant.reason}; otherwise unused GPUs speed it up"
        grants[ranked.request.key] = GpuGrant(key=grant.key, size=size, in_time=grant.in_time, reason=why)
    return free


def _step(ranked: _RankedRequest, grant: GpuGrant, free: int) -> tuple[float, _RankedRequest, Size] | None:
    """The next larger size that fits, and the speed-up per relative increase in GPUs."""
    now = grant.size
    larger = [s for s in ranked.request.sizes if now.gpus < s.gpus <= now.gpus + free]
    if not larger:
        return None
    size = larger[0]
    faster = (size.tokens_per_s * size.goodput) / (now.tokens_per_s * now.goodput) - 1.0
    return faster / (size.gpus / now.gpus - 1.0), ranked, size
