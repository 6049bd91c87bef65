"""The objective of one cluster's search: GPUs, cost or time; and an exact number of GPUs."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.search.fewest import SearchResult, fewest, finishing_in_time, rows_at, rows_on
from rightsizer_engine.search.gpu_counts import counts, thin
from rightsizer_engine.search.memory_fit import fitting
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.pricing.rows import Rows, concatenate_rows
from rightsizer_engine.search.selection import SIMPLER_WITHIN, best, meets
from rightsizer_engine.search.types import Objective, Request

Found = tuple[SearchResult | None, int]
"""What was found, and how many rows were priced."""

FAIR_WITHIN = 0.5
"""Without a deadline the fewest GPUs win whose GPU-hours are within a half of the least. A choice: a layout
that fits by recomputing everything takes a third more; one that waits for host memory can take many times."""

_POINTS = 40
"""Counts priced where a result near the best is enough."""


def search_for(request: Request) -> Callable[[SearchContext, Array, Array], Found]:
    """The search for the request's objective: (context, allowed counts, feasible families) -> result."""
    if len(request.gpu_counts) == 1 and request.may_idle:
        return _exactly
    if request.objective is Objective.COST:
        return _least_cost
    if request.objective is Objective.TIME:
        return _soonest
    return fewest if request.deadline_s is not None else _fewest_at_a_fair_cost


def _fewest_at_a_fair_cost(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """Without a deadline the fewest GPUs that fit, at up to FAIR_WITHIN more GPU-hours than the least.

    The least is that of a ladder of counts that does not depend on the limit. So with a larger limit the
    result stays as it is, or costs less.
    """
    ladder = allowed[np.isin(allowed, _ladder(context, int(allowed[-1])))]
    rows = rows_on(context, ladder if ladder.size else allowed, feasible)
    least = np.min(_held_gpu_s(context, rows), where=meets(rows, context.request), initial=np.inf)

    def fair(rows: Rows) -> Array:
        within = _held_gpu_s(context, rows) <= least * (1 + FAIR_WITHIN)
        return np.asarray(meets(rows, context.request) & within)

    found, evaluated = fewest(context, allowed, feasible, good=fair)
    return found, evaluated + len(rows)


def _ladder(context: SearchContext, most: int) -> Array:
    """The parts of a node, and 2^k and 3 2^k nodes."""
    node = max(1, context.cluster.gpus_per_node)
    powers = node * 2 ** np.arange(max(1, most // node).bit_length())
    return np.concatenate([np.arange(1, node), powers, 3 * powers])


def _held_gpu_s(context: SearchContext, rows: Rows) -> Array:
    """GPU-seconds that are paid for, spares included."""
    spares = (context.request.spare_nodes or 0) * context.cluster.gpus_per_node
    return np.asarray((rows.gpus + spares) * rows.finish_s)


def _least_cost(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The least GPU-hours, spares included. Every count is priced, so a longer deadline never costs more."""
    best_row: Rows | None = None
    least, evaluated = np.inf, 0
    for rows in finishing_in_time(context, allowed, feasible):
        evaluated += len(rows)
        hours = np.where(meets(rows, context.request), _held_gpu_s(context, rows), np.inf)
        if hours.min(initial=np.inf) < least:
            least, best_row = float(hours.min()), rows.row(int(np.argmin(hours)))
    if best_row is None:
        return None, evaluated
    at_count = rows_at(context, int(best_row.gpus[0]), feasible)
    return SearchResult(row=best_row, at_count=at_count, evaluated=evaluated), evaluated


def _soonest(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The earliest finish within the limits: of a grid of counts, then of all that may finish before it."""
    found, evaluated = _on_grid(context, allowed, feasible)
    limit_s = context.request.deadline_s if found is None else float(found.row.due_s[0])
    timed = replace(context, request=replace(context.request, deadline_s=limit_s))
    parts = [rows for rows in finishing_in_time(timed, allowed, feasible) if len(rows)]
    if not parts:
        return found, evaluated
    rows = concatenate_rows(parts)
    index = best(rows, meets(rows, context.request))
    return (found if index is None else _result(rows, index, len(rows))), evaluated + len(rows)


def _on_grid(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The earliest finish on _POINTS counts."""
    if not allowed.size or not feasible.size:
        return None, 0
    rows = rows_on(context, thin(allowed, _POINTS), feasible)
    index = best(rows, meets(rows, context.request)) if len(rows) else None
    return (None if index is None else _result(rows, index, len(rows))), len(rows)


def _result(rows: Rows, index: int, evaluated: int) -> SearchResult:
    at_count = rows.take(np.flatnonzero(rows.gpus == rows.gpus[index]))
    return SearchResult(row=rows.row(index), at_count=at_count, evaluated=evaluated)


def _exactly(context: SearchContext, allowed: Array, feasible: Array) -> Found:
    """The fastest layout on one number of GPUs, or on fewer where that is faster: the others idle."""
    rows = rows_at(context, int(allowed[-1]), feasible)
    sooner, evaluated = _on_fewer(context, int(allowed[-1]), rows)
    rows = rows if sooner is None else sooner
    index = best(rows, np.ones(len(rows), dtype=bool))
    if index is None or not meets(rows, context.request)[index]:
        return None, evaluated
    return _result(rows, index, evaluated), evaluated


def _on_fewer(context: SearchContext, requested: int, known: Rows) -> tuple[Rows | None, int]:
    """The rows of the smaller count that finishes first, if before the `known` rows; and rows priced."""
    smaller = counts(replace(context.request, gpu_counts=(), min_gpus=1), context.cluster, limit=requested)
    smaller = smaller[smaller < requested]
    feasible = fitting(context, requested)[0] if smaller.size else smaller
    some, evaluated = _on_grid(context, smaller, feasible)
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
