"""The search of one cluster: the chosen row, or the binding constraint and the nearest options."""

from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.search.fewest import SearchResult, fewest, rows_at
from rightsizer_engine.search.gpu_counts import all_pairs, counts, thin
from rightsizer_engine.search.memory_fit import fitting
from rightsizer_engine.search.objectives import search_for
from rightsizer_engine.search.pricing.context import SearchContext, search_context
from rightsizer_engine.search.pricing.layout_space import layouts
from rightsizer_engine.search.pricing.options import option
from rightsizer_engine.search.pricing.rows import fit_layouts, price_pairs
from rightsizer_engine.search.selection import best
from rightsizer_engine.search.types import Binding, CappedOpening, Option, Request, Staging
from rightsizer_engine.values import immutable

_LOOK_BEYOND = 16
"""Up to this multiple of the allowed GPUs is searched, to report how many would be enough."""


@immutable
class ClusterResult:
    """A cluster that meets the request. `feasible` families fit memory on some of the `allowed` counts.

    `staging`: how an elastic job goes on from the best row. `ruled_out`: a smaller opening, of a fixed size.
    """

    context: SearchContext
    best: SearchResult
    feasible: Array
    allowed: Array
    evaluated: int
    staging: Staging | None = None
    ruled_out: CappedOpening | None = None


@immutable
class Infeasible:
    """A cluster that cannot: the binding constraint, the fewest bytes of any layout, the nearest options."""

    cluster: Cluster
    binding: str
    least_bytes: float = np.inf
    nearest: tuple[Option, ...] = ()
    needs_gpus: int | None = None
    evaluated: int = 0


@immutable
class _Space:
    """The search space of one cluster. `feasible` families fit memory on the most `allowed` GPUs or fewer."""

    context: SearchContext
    allowed: Array
    feasible: Array
    least_bytes: float


def search_cluster(
    request: Request, cluster: Cluster, *, explained: bool = True
) -> ClusterResult | Infeasible:
    """Search every layout on every allowed count, with and without offload to host memory.

    The layouts of a count do not depend on the limit, so more GPUs allowed never refuse a request, nor make
    its result worse by the objective (up to ties: a simpler layout wins within SIMPLER_WITHIN). Without
    `explained`, an infeasible request comes without the nearest options.
    """
    space = _space(request, cluster)
    if not len(space.context.families) or not space.allowed.size:
        return _nothing_to_search(space)
    found, evaluated = _search(space)
    return _refusal(space, evaluated, explained=explained) if found is None else found


def _space(request: Request, cluster: Cluster) -> _Space:
    context, allowed = search_context(request, cluster), counts(request, cluster)
    feasible, least_bytes = fitting(context, int(allowed[-1])) if allowed.size else (allowed, np.inf)
    return _Space(context=context, allowed=allowed, feasible=feasible, least_bytes=least_bytes)


def _nothing_to_search(space: _Space) -> Infeasible:
    context = space.context
    if not len(context.families):
        return Infeasible(cluster=context.cluster, binding=Binding.LAYOUT)
    return Infeasible(cluster=context.cluster, binding=Binding.MAX_GPUS, nearest=_nearest_sizes(context))


def _search(space: _Space) -> tuple[ClusterResult | None, int]:
    """The cluster's best row, and how many rows were priced."""
    if not space.feasible.size:
        return None, len(space.context.families)
    result, evaluated = search_for(space.context.request)(space.context, space.allowed, space.feasible)
    evaluated += len(space.context.families)
    if result is None:
        return None, evaluated
    found = ClusterResult(
        context=space.context,
        best=result,
        feasible=space.feasible,
        allowed=space.allowed,
        evaluated=evaluated,
    )
    return found, evaluated


def _refusal(space: _Space, evaluated: int, *, explained: bool) -> Infeasible:
    """Why no layout of the space meets the request."""
    context = space.context
    if not space.feasible.size:
        return _infeasible(context, Binding.MEMORY, least_bytes=space.least_bytes, evaluated=evaluated)
    if not explained:
        return _infeasible(context, Binding.DEADLINE, evaluated=evaluated)
    return _explain_infeasible(context, space.allowed, space.feasible, evaluated)


def _infeasible(
    context: SearchContext,
    binding: str,
    *,
    evaluated: int,
    least_bytes: float = np.inf,
    nearest: tuple[Option, ...] = (),
    needs_gpus: int | None = None,
) -> Infeasible:
    return Infeasible(
        cluster=context.cluster,
        binding=binding,
        least_bytes=least_bytes,
        nearest=nearest,
        needs_gpus=needs_gpus,
        evaluated=evaluated,
    )


def _explain_infeasible(
    context: SearchContext, allowed: Array, feasible: Array, evaluated: int
) -> Infeasible:
    """The binding constraint and the nearest options, given that some family fits memory on some count."""
    request, grid = context.request, _sample_counts(allowed)
    family, gpus = all_pairs(context, feasible, grid)
    rows = price_pairs(context, family, gpus)
    evaluated += len(rows)
    if not len(rows):
        binding, least = _memory_or_batch(context, family, gpus)
        return _infeasible(context, binding, least_bytes=least, evaluated=evaluated)
    in_time = rows.finish_at_confidence_s <= (request.deadline_s or np.inf)
    if request.max_usd is not None and in_time.any():
        cheap = option(context, rows, int(np.argmin(np.where(in_time, rows.cost_usd, np.inf))))
        return _infeasible(context, Binding.BUDGET, nearest=(cheap,), evaluated=evaluated)
    fastest = option(context, rows, int(np.argmin(rows.finish_at_confidence_s)))
    needed, more = _with_more_gpus(context, allowed)
    if needed is None:
        return _infeasible(context, Binding.DEADLINE, nearest=(fastest,), evaluated=evaluated + more)
    return _infeasible(
        context,
        Binding.MAX_GPUS,
        nearest=(fastest, needed),
        needs_gpus=needed.gpus,
        evaluated=evaluated + more,
    )


def _nearest_sizes(context: SearchContext) -> tuple[Option, ...]:
    """The best layouts on the sizes around a single GPU count that makes no whole nodes."""
    request = context.request
    if len(request.gpu_counts) != 1:
        return ()
    every = counts(replace(request, gpu_counts=(), min_gpus=1), context.cluster)
    after = int(np.searchsorted(every, request.gpu_counts[0]))
    found = []
    for gpus in every[max(0, after - 1) : after + 1]:
        rows = rows_at(context, int(gpus), fitting(context, int(gpus))[0])
        index = best(rows, np.ones(len(rows), dtype=bool))
        found += [] if index is None else [option(context, rows, index)]
    return tuple(found)


def _with_more_gpus(context: SearchContext, allowed: Array) -> tuple[Option | None, int]:
    """The option that meets the deadline with more GPUs than allowed, and rows priced."""
    request = replace(context.request, gpu_counts=(), max_usd=None)
    most = max(int(allowed[-1]) * _LOOK_BEYOND, context.cluster.gpus_per_node)
    more = counts(request, context.cluster, limit=most)
    more = more[more > allowed[-1]]
    if not more.size:
        return None, 0
    wider = replace(context, request=request)
    feasible, _ = fitting(wider, int(more[-1]))
    result, evaluated = fewest(wider, more, feasible)
    return (None if result is None else option(wider, result.row)), evaluated + len(wider.families)


def _memory_or_batch(context: SearchContext, family: Array, gpus: Array) -> tuple[str, float]:
    """MEMORY and the fewest bytes if legal layouts exist; else BATCH, which divides over no count."""
    request = context.request
    columns, legal = layouts(
        context.families.take(family), gpus, request.workload, batch_tolerance=request.batch_tolerance
    )
    if not legal.any():
        return Binding.BATCH, np.inf
    chosen = np.flatnonzero(legal)
    _, used = fit_layouts(context, family[chosen], columns.take(chosen))
    return Binding.MEMORY, float(used.min())


def _sample_counts(allowed: Array) -> Array:
    """Counts for the nearest options: the largest, those a sixteenth apart, and a few small ones."""
    most = int(allowed[-1])
    fractions = most * np.arange(1, 17) // 16
    return distinct(np.concatenate([allowed[-8:], allowed[np.isin(allowed, fractions)], thin(allowed, 8)]))
