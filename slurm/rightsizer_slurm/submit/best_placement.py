"""The best size within a request's own bounds, and what becomes of a training that outlasts its limit. Pure.

A commented script is the user's own: it goes on after a time limit only if it requeues itself. Any other gets
the cheapest size that ends within the limit, if there is one.
"""

import contextlib
import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from rightsizer_api import TrainingPlan, sizing
from rightsizer_api.resources import Deadline
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.types import NoPlan
from rightsizer_engine.units import format_duration
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.submit.placement import (
    AtLimit,
    OutlastsError,
    Placement,
    PlacementLimits,
    finish_limit_s,
    fit,
    limit_s,
)
from rightsizer_slurm.submit.protocol import SizingRequest

_SHORTEST_S = 60.0


def bounds_of(request: SizingRequest, left_s: Iterable[float]) -> PlacementLimits:
    """The request's bounds; `left_s` are the times until a --deadline or the end of a reservation."""
    ends_s = min((60.0 * (left // 60.0) for left in left_s), default=None)
    if ends_s is not None and 60.0 * (request.time_min or 0) > ends_s:
        remedy = (
            f"minutes are more than the {format_duration(max(0.0, ends_s))} until the job must have ended"
        )
        raise InputError("--time-min", value=request.time_min, remedy=remedy)
    return PlacementLimits(
        nodes=request.most_nodes,
        time_s=60.0 * request.time_limit if request.time_limit else None,
        ends_s=ends_s,
        at_limit=AtLimit.REQUEUED if request.requeues else AtLimit.FITS,
    )


def best(
    plan: TrainingPlan, candidates: Sequence[Pool], bounds: PlacementLimits, *, have: str, now: dt.datetime
) -> Placement | NoPlan:
    """The cheapest size that fits the time limit, or that goes on after it.

    A training that saves, and that no size completes within the limit, ends there: the placement says so.
    """
    sized = partial(fit, plan, candidates, have=have, now=now)
    ends = replace(bounds, at_limit=AtLimit.ENDS)
    with contextlib.suppress(OutlastsError):
        return sized(bounds=bounds)
    try:
        within = _best_in_time(plan, candidates, bounds, have=have, now=now)
    except OutlastsError:  # of a limit that is shorter than any training
        return sized(bounds=ends)
    if isinstance(within, NoPlan) and plan.spec.launch.checkpoint is not None:
        with contextlib.suppress(OutlastsError):  # nothing goes on after a --deadline
            return sized(bounds=ends)
    return within


def _best_in_time(
    plan: TrainingPlan, candidates: Sequence[Pool], bounds: PlacementLimits, *, have: str, now: dt.datetime
) -> Placement | NoPlan:
    """The cheapest size that ends within the time limit of its partition."""
    refused: list[NoPlan] = []
    placements: list[Placement] = []
    for most_s in sorted({limit_s(pool, bounds) for pool in candidates}, reverse=True):
        alike = [pool for pool in candidates if limit_s(pool, bounds) == most_s]
        result = fit(_within(plan, most_s, now), alike, have=have, bounds=bounds, now=now)
        if isinstance(result, Placement):
            placements.append(result)
        else:
            refused.append(result)
    return min(placements, key=_price) if placements else refused[0]


def _price(placement: Placement) -> tuple[bool, float, int]:
    """Order of preference: sizes that can start now, then the cheaper, then the smaller."""
    option = placement.option
    return placement.waits, math.inf if option.cost_usd is None else option.cost_usd, option.gpus


def _within(plan: TrainingPlan, most_s: float, now: dt.datetime) -> TrainingPlan:
    """The plan with a deadline no later than a time limit allows."""
    if math.isinf(most_s):
        return plan
    finish_s = max(_SHORTEST_S, finish_limit_s(most_s))
    stated_s = sizing.deadline_s(plan, now=now)
    if stated_s is not None and stated_s <= finish_s:
        return plan
    confidence = plan.spec.deadline.confidence if plan.spec.deadline else 0.9
    deadline = Deadline(finish_within=f"{int(finish_s)}s", confidence=confidence)
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"deadline": deadline})})
