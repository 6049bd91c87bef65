"""What the search of one cluster minimises: GPUs, cost or time; and an exact number of GPUs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rightsizer.domain.columns import Array
from rightsizer.search.pricing import Rows, SearchContext, concatenate_rows, price_pairs
from rightsizer.search.search import (
    SIMPLER_WITHIN,
    SearchResult,
    best,
    counts,
    fewest,
    finishing_in_time,
    fitting,
    meets,
    pairs,
    rows_at,
    thin,
)
from rightsizer.search.types import Objective, Request

__all__ = ["CHEAP_WITHIN", "Found", "search_for"]

Found = tuple[SearchResult | None, int]
"""What was found, and how many rows were priced."""

CHEAP_WITHIN = 0.05
"""Without a deadline the fastest plan within 5 % of the lowest cost wins."""

_POINTS = 40
"""Counts priced where an answer near the best will do."""


def search_for(request: Request) -> Callable[[SearchContext, Array, Array], Found]:
    """The search that the request asks for: (context, allowed counts, feasible families) -> result."""
    if len(request.gpu_counts) == 1 and request.may_idle:
        return _exactly
    if request.objective is Objective.COST:
        return _least_cost
    if request.objective is Objective.TIME:
        return _soonest
    return fewest if request.deadline_s is not None else _cheapest


def _cheapest(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """Without a deadline: the fastest row within CHEAP_WITHIN of the fewest GPU-hours."""

    def choose(rows: Rows, good: Array) -> int | None:
        hours = rows.gpus * rows.finish_s
        return best(rows, good & (hours <= hours[good].min(initial=np.inf) * (1 + CHEAP_WITHIN)))

    return _on_grid(context, allowed, feasible, choose)


def _least_cost(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The least GPU-hours, spares included. Every count is priced, so a longer deadline never costs more."""
    spares = (context.request.spare_nodes or 0) * context.cluster.gpus_per_node
    best_row: Rows | None = None
    least, evaluated = np.inf, 0
    for rows in finishing_in_time(context, allowed, feasible):
        evaluated += len(rows)
        hours = np.where(meets(rows, context.request), (rows.gpus + spares) * rows.finish_s, np.inf)
        if hours.min(initial=np.inf) < least:
            least, best_row = float(hours.min()), rows.take(np.asarray([np.argmin(hours)]))
    if best_row is None:
        return None, evaluated
    at_count = rows_at(context, int(best_row.gpus[0]), feasible)
    return SearchResult(row=best_row, at_count=at_count, evaluated=evaluated), evaluated


def _soonest(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The earliest finish within the limits."""
    found, evaluated = _on_grid(context, allowed, feasible, best)
    if found is None and context.request.deadline_s is not None:  # the grid is coarse
        found, more = fewest(context, allowed, feasible)
        evaluated += more
    return found, evaluated


def _on_grid(
    context: SearchContext,
    allowed: Array,
    feasible: Array,
    choose: Callable[[Rows, Array], int | None],
) -> Found:
    if not allowed.size or not feasible.size:
        return None, 0
    chosen, gpus = pairs(context.families.unit[feasible], np.zeros(feasible.shape), thin(allowed, _POINTS))
    rows = price_pairs(context, feasible[chosen], gpus)
    index = choose(rows, meets(rows, context.request)) if len(rows) else None
    return (None if index is None else _result(rows, index, len(rows))), len(rows)


def _result(rows: Rows, index: int, evaluated: int) -> SearchResult:
    at_count = rows.take(np.flatnonzero(rows.gpus == rows.gpus[index]))
    return SearchResult(row=rows.take(np.asarray([index])), at_count=at_count, evaluated=evaluated)


def _exactly(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The fastest layout on one number of GPUs, or on fewer where that is faster: the others idle."""
    rows = rows_at(context, int(allowed[-1]), feasible)
    sooner, evaluated = _on_fewer(context, int(allowed[-1]), rows)
    rows = rows if sooner is None else sooner
    index = best(rows, np.ones(len(rows), dtype=bool))
    if index is None or not meets(rows, context.request)[index]:
        return None, evaluated
    return _result(rows, index, evaluated), evaluated


def _on_fewer(context: SearchContext, asked: int, known: Rows) -> tuple[Rows | None, int]:
    """The rows of the smaller count that finishes first, if before the `known` rows; and rows priced."""
    smaller = counts(replace(context.request, gpu_counts=(), min_gpus=1), context.cluster, limit=asked)
    smaller = smaller[smaller < asked]
    feasible = fitting(context, asked)[0] if smaller.size else smaller
    some, evaluated = _on_grid(context, smaller, feasible, best)
    candidates = [rows for rows in (known, None if some is None else some.row) if rows is not None]
    limit_s = min((float(rows.due_s.min()) for rows in candidates if len(rows)), default=np.inf)
    if not np.isfinite(limit_s) or not smaller.size:
        return None, evaluated + len(known)
    timed = replace(context, request=replace(context.request, deadline_s=limit_s, max_usd=None))
    rows = concatenate_rows([known, *finishing_in_time(timed, smaller, feasible)])
    evaluated += len(rows)
    first = int(np.argmin(rows.due_s))
    simplest = best(known, np.ones(len(known), dtype=bool))
    if simplest is not None and known.due_s[simplest] <= rows.due_s[first] * (1 + SIMPLER_WITHIN):
        return None, evaluated
    return rows.take(np.flatnonzero(rows.gpus == rows.gpus[first])), evaluated
