"""The opening size and the reserve of one cluster's plan, from the best layouts on the sizes around it."""

import math
from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.estimate import cost, goodput
from rightsizer_engine.estimate.parameters import share_of_one_run
from rightsizer_engine.search.cluster_search import ClusterResult
from rightsizer_engine.search.fewest import SearchResult, rows_at
from rightsizer_engine.search.gpu_counts import thin
from rightsizer_engine.search.opening import (
    CAP_COSTS,
    Constraints,
    OpeningProblem,
    RateErrors,
    SizeCurve,
    choose_opening,
    deadline_probability,
)
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.pricing.rows import Rows, concatenate_rows, price_pairs
from rightsizer_engine.search.selection import best_row, fastest_families, meets
from rightsizer_engine.search.types import CappedOpening

_LEAD_S = 3600.0
"""Time until a grown job has its GPUs. A guess: an hour in a queue."""

_POINTS = 24
_REACH = (0.5, 4.0)
"""Sizes considered, as multiples of the size that is enough at even odds."""
_STEPS = 48
"""Sizes between the two ends that each family is tried with."""
_FAMILIES = 64
"""The fastest families at that size, at twice that size and at the fixed size are priced on the others."""


def stage(result: ClusterResult, fixed: ClusterResult | None) -> ClusterResult | None:
    """The result with its opening size and staging; else the fixed size, if it does as well or nothing holds.

    `result` is the search of an elastic request: the fewest GPUs whose median finish is in time. `fixed` is
    that of the same request for a job that is never resized; None: no allowed size is in time.
    """
    context, even = result.context, int(result.best.row.gpus[0])
    static = None if fixed is None else int(fixed.best.row.gpus[0])
    if static is not None and static <= even:
        return fixed
    problem = opening_problem(result, fixed)
    first = int(np.searchsorted(problem.sizes.gpus, even))
    least = problem.constraints.confidence - (CAP_COSTS if problem.capped and fixed is not None else 0.0)
    found = choose_opening(problem, first=first, least=least)
    if found is None or (static is not None and static <= int(problem.sizes.gpus[found[0]])):
        return fixed and replace(fixed, ruled_out=_ruled_out(problem, first))
    opening, staging = int(problem.sizes.gpus[found[0]]), found[1]
    best_result = result.best if opening == even else _at(context, opening, result)
    return replace(result, best=best_result, staging=replace(staging, static_gpus=static))


def _ruled_out(problem: OpeningProblem, first: int) -> CappedOpening | None:
    """The opening at even odds, if the allowed GPUs bound its growth; within the budget."""
    probability = deadline_probability(problem, first) if problem.capped else 0.0
    if not probability:
        return None
    gpus = problem.sizes.gpus
    return CappedOpening(gpus=int(gpus[first]), reserve_gpus=int(gpus[-1]), probability=probability)


def opening_problem(result: ClusterResult, fixed: ClusterResult | None = None) -> OpeningProblem:
    """The input for the choice of the opening: the best finish on sizes around the result's."""
    even, most = int(result.best.row.gpus[0]), int(result.allowed[-1])
    return OpeningProblem(
        sizes=_best_finish(_price(result, fixed), even),
        errors=_rate_errors(result.best.row),
        constraints=_constraints(result.context, start_s=float(result.best.row.once_s[0])),
        capped=min(most, result.context.request.grow_to or most) < _REACH[1] * even,
    )


def _price(result: ClusterResult, fixed: ClusterResult | None) -> Rows:
    """The fastest families, each on the sizes within reach over which its batch divides well."""
    context, even, at_count = result.context, int(result.best.row.gpus[0]), result.best.at_count
    twice = rows_at(context, 2 * even, result.feasible) if 2 * even in result.allowed else at_count
    later = () if fixed is None else (fastest_families(fixed.best.at_count, _FAMILIES),)
    fastest = distinct(
        np.concatenate([fastest_families(at_count, _FAMILIES), fastest_families(twice, _FAMILIES), *later])
    )
    grow_to = max(even, context.request.grow_to or even * math.ceil(_REACH[1]))
    family, gpus = _even_sizes(context, fastest, result.allowed[result.allowed <= grow_to], even)
    known = [result.best.row] if fixed is None else [result.best.row, fixed.best.row]
    return concatenate_rows([price_pairs(context, family, gpus), *known])


def _even_sizes(context: SearchContext, families: Array, allowed: Array, even: int) -> tuple[Array, Array]:
    """Pairs of a family and a size near each step of an even grid at which n micro-batches make the batch."""
    unit, micro_batch = context.families.unit[families], context.families.axes["micro_batch"][families]
    batch = context.request.workload.global_batch_sequences
    wanted = np.geomspace(even * _REACH[0], even * _REACH[1], _STEPS)
    micro_batches = np.maximum(1, np.rint(batch * (unit / micro_batch)[:, None] / wanted))
    gpus = np.maximum(1, np.rint(batch / micro_batch[:, None] / micro_batches)) * unit[:, None]
    nearest = np.minimum(np.searchsorted(allowed, gpus), allowed.size - 1)
    found = np.unique(
        np.stack([np.broadcast_to(families[:, None], gpus.shape), allowed[nearest]]).reshape(2, -1), axis=1
    )
    return found[0], found[1]


def _best_finish(rows: Rows, even: int) -> SizeCurve:
    """The sizes on which some layout is faster than on all smaller ones: surplus GPUs would stay idle."""
    training_s = rows.finish_s - rows.once_s
    order = np.lexsort((training_s, rows.gpus))
    gpus, finish_s = rows.gpus[order], training_s[order]
    faster = np.append(True, finish_s[1:] < np.minimum.accumulate(finish_s)[:-1])
    faster &= np.append(True, gpus[1:] != gpus[:-1]) | (gpus == even)
    gpus, finish_s = gpus[faster], finish_s[faster]
    keep = np.isin(gpus, np.append(thin(gpus, _POINTS), even))
    return SizeCurve(gpus=gpus[keep], finish_s=finish_s[keep])


def _rate_errors(row: Rows) -> RateErrors:
    """The deviations of a prediction; between two sizes twice a run's share, as in the resize policy."""
    unmeasurable, total, step = goodput.stays_ln(), float(row.finish_sigma[0]), float(row.sigma[0])
    return RateErrors(
        measurable=math.sqrt(max(0.0, total**2 - unmeasurable**2)),
        between_sizes=step * math.sqrt(2.0 * share_of_one_run()),
        unmeasurable=unmeasurable,
    )


def _constraints(context: SearchContext, *, start_s: float) -> Constraints:
    request = context.request
    assert request.deadline_s is not None  # only requests with a deadline are staged
    return Constraints(
        deadline_s=request.deadline_s,
        confidence=request.confidence,
        start_s=start_s,
        restart_s=request.reliability.restart_s,
        lead_s=_LEAD_S,
        most_gpu_s=_budget_gpu_s(context),
    )


def _budget_gpu_s(context: SearchContext) -> float:
    """GPU-seconds that the budget pays for; without a price no budget holds."""
    request, price_usd = context.request, cost.price_usd_per_gpu_h(context.cluster)
    if request.max_usd is None or not price_usd:
        return math.inf
    return request.max_usd / price_usd * 3600.0


def _at(context: SearchContext, gpus: int, result: ClusterResult) -> SearchResult:
    """The best row on exactly these GPUs."""
    rows = rows_at(context, gpus, result.feasible)
    row = best_row(rows, meets(rows, context.request))
    assert row is not None  # this size was priced, and more GPUs than at even odds are in time
    return SearchResult(
        row=row,
        at_count=rows,
        evaluated=len(rows),
        fewer_gpus=result.best.row,
    )
