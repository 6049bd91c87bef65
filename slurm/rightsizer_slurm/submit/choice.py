"""The best size within a request's bounds, and what becomes of a training that outlasts its limit. Pure.

A commented script is the user's own: it goes on after a time limit only if it requeues itself. Any other gets
the cheapest size that ends within the limit, if there is one.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rightsizer_api import sizing
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_api.spec.resources import Deadline
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.search.types import NoPlan
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.submit.bounds import Bounds, Offer, placement_limits
from rightsizer_slurm.submit.constraints import NotUnderstoodError, check_tasks, with_spec, with_tasks
from rightsizer_slurm.submit.placement import (
    AtLimit,
    OutlastsError,
    Placement,
    PlacementLimits,
    finish_limit_s,
    fit,
    limit_s,
)

_SHORTEST_S = 60.0


@immutable
class NoPlacement:
    """No size fits: the engine's reason or the user's mistake, and the pools that were offered."""

    cause: NoPlan | RightsizerError
    offer: Offer


def choose(bounds: Bounds) -> Placement | NoPlacement:
    """The cheapest size on the nodes that are up; if none fits, on the whole cluster. NotUnderstoodError."""
    chosen = _chosen(bounds)
    if isinstance(chosen, NoPlacement) and (whole := bounds.all_up) is not None:
        return _chosen(whole)
    return chosen


def _chosen(bounds: Bounds) -> Placement | NoPlacement:
    offer = Offer()
    try:
        offer = bounds.offer()
        limits = placement_limits(bounds.request, bounds.left_s.values())
        placement = _best(bounds.plan, offer.allowed, limits, bounds)
        if isinstance(placement, Placement):
            placement = _agreeing(placement, offer.allowed, limits, bounds)
    except NotUnderstoodError:
        raise
    except RightsizerError as error:
        return NoPlacement(cause=error, offer=offer)
    return placement if isinstance(placement, Placement) else NoPlacement(cause=placement, offer=offer)


def _agreeing(
    placement: Placement, candidates: Sequence[Pool], limits: PlacementLimits, bounds: Bounds
) -> Placement | NoPlan:
    """The placement, or one that agrees with the user's tasks and with --exclusive."""
    plan, request = bounds.plan, bounds.request
    other: Placement | NoPlan = placement
    whole = placement.pool.node_gpus
    if request.exclusive == 0 and placement.node_gpus < whole:
        if request.mode == "enforce":
            remedy = f"takes all {whole} GPUs of a node, the plan needs {placement.node_gpus}; leave it out"
            raise InputError("--exclusive", value=None, remedy=remedy)
        other = _best(with_tasks(plan, request, gpus=whole), (placement.pool,), limits, bounds)
    elif request.num_tasks and not request.node_tasks:
        try:
            check_tasks(placement, request)
        except NotUnderstoodError:
            other = _best(with_tasks(plan, request, gpus=request.num_tasks), candidates, limits, bounds)
            if isinstance(other, NoPlan):
                raise
    if isinstance(other, Placement):
        check_tasks(other, request)
    return other


def _best(
    plan: ResolvedPlan, candidates: Sequence[Pool], limits: PlacementLimits, bounds: Bounds
) -> Placement | NoPlan:
    """The cheapest size that fits the time limit, or that goes on after it.

    A training that saves, and that no size completes within the limit, ends there: the placement says so.
    """
    sized = partial(fit, plan, candidates, have=bounds.cluster.summary(), now=bounds.now)
    ends = replace(limits, at_limit=AtLimit.ENDS)
    with contextlib.suppress(OutlastsError):
        return sized(bounds=limits)
    try:
        within = _best_in_time(plan, candidates, limits, bounds)
    except OutlastsError:  # of a limit that is shorter than any training
        return sized(bounds=ends)
    if isinstance(within, NoPlan) and plan.plan.spec.launch.checkpoint is not None:
        with contextlib.suppress(OutlastsError):  # nothing goes on after a --deadline
            return sized(bounds=ends)
    return within


def _best_in_time(
    plan: ResolvedPlan, candidates: Sequence[Pool], limits: PlacementLimits, bounds: Bounds
) -> Placement | NoPlan:
    """The cheapest size that ends within the time limit of its partition."""
    refused: list[NoPlan] = []
    placements: list[Placement] = []
    for most_s in sorted({limit_s(pool, limits) for pool in candidates}, reverse=True):
        alike = [pool for pool in candidates if limit_s(pool, limits) == most_s]
        hurried, have = _within(plan, most_s, bounds), bounds.cluster.summary()
        result = fit(hurried, alike, have=have, bounds=limits, now=bounds.now)
        if isinstance(result, Placement):
            placements.append(result)
        else:
            refused.append(result)
    return min(placements, key=_price) if placements else refused[0]


def _price(placement: Placement) -> tuple[bool, float, int]:
    """Order of preference: sizes that can start now, then the cheaper, then the smaller."""
    option = placement.option
    return placement.waits, math.inf if option.cost_usd is None else option.cost_usd, option.gpus


def _within(plan: ResolvedPlan, most_s: float, bounds: Bounds) -> ResolvedPlan:
    """The plan with a deadline no later than a time limit allows."""
    if math.isinf(most_s):
        return plan
    finish_s = max(_SHORTEST_S, finish_limit_s(most_s))
    stated_s = sizing.deadline_s(plan.plan, now=bounds.now)
    if stated_s is not None and stated_s <= finish_s:
        return plan
    stated = plan.plan.spec.deadline
    confidence = stated.confidence if stated else 0.9
    return with_spec(plan, deadline=Deadline(finish_within=f"{int(finish_s)}s", confidence=confidence))
