"""What one cluster can do for a request: the chosen row, or what binds and what comes nearest."""

from dataclasses import replace

import numpy as np

from rightsizer.domain.columns import Array, distinct
from rightsizer.domain.hardware import Cluster
from rightsizer.search.layout_space import layouts
from rightsizer.search.options import option
from rightsizer.search.pricing import Ground, fit_layouts, price_pairs, search_ground
from rightsizer.search.search import Found, cheapest, counts, fewest, fitting, pairs, thin
from rightsizer.search.types import Binding, Option, Request
from rightsizer.values import immutable

__all__ = ["Refusal", "Winner", "answer"]

_LOOK_BEYOND = 16
"""How far above the allowed GPUs the search goes to say how many would do."""


@immutable
class Winner:
    """A cluster on which the request can be met."""

    ground: Ground
    found: Found
    alive: Array
    allowed: Array
    evaluated: int


@immutable
class Refusal:
    """A cluster on which it cannot: what binds, the least bytes that a layout needs, the nearest options."""

    cluster: Cluster
    binding: str
    least_bytes: float = np.inf
    nearest: tuple[Option, ...] = ()
    needs_gpus: int | None = None
    evaluated: int = 0


def answer(request: Request, cluster: Cluster, *, explained: bool = True) -> Winner | Refusal:
    """The search without host memory, and again with it only if nothing fits otherwise.

    Where it need not be `explained`, a refusal for want of time or money says nothing of what comes nearest.
    """
    first = _searched(request, cluster, offload=False, explained=explained)
    can = request.framework.can_offload_optimizer or request.framework.can_offload_parameters
    if isinstance(first, Refusal) and first.binding == Binding.MEMORY and can:
        second = _searched(request, cluster, offload=True, explained=explained)
        if isinstance(second, Winner) or second.binding != Binding.MEMORY:
            return replace(second, evaluated=first.evaluated + second.evaluated)
    return first


def _searched(request: Request, cluster: Cluster, *, offload: bool, explained: bool) -> Winner | Refusal:
    base = search_ground(request, cluster, offload=offload)
    some = base.families
    allowed = counts(request, cluster)
    if not len(some):
        return Refusal(cluster=cluster, binding=Binding.LAYOUT)
    if not allowed.size:
        return Refusal(cluster=cluster, binding=Binding.MAX_GPUS)
    alive, least_bytes = fitting(base, int(allowed[-1]))
    if not alive.size:
        return _refused(base, Binding.MEMORY, least_bytes=least_bytes, evaluated=len(some))
    search = cheapest if request.deadline_s is None else fewest
    found, evaluated = search(base, allowed, alive)
    evaluated += len(some)
    if found is None and not explained:
        return _refused(base, Binding.DEADLINE, evaluated=evaluated)
    if found is None:
        return _why_not(base, allowed, alive, evaluated)
    return Winner(ground=base, found=found, alive=alive, allowed=allowed, evaluated=evaluated)


def _refused(
    base: Ground,
    binding: str,
    *,
    evaluated: int,
    least_bytes: float = np.inf,
    nearest: tuple[Option, ...] = (),
    needs_gpus: int | None = None,
) -> Refusal:
    return Refusal(
        cluster=base.cluster,
        binding=binding,
        least_bytes=least_bytes,
        nearest=nearest,
        needs_gpus=needs_gpus,
        evaluated=evaluated,
    )


def _why_not(base: Ground, allowed: Array, alive: Array, evaluated: int) -> Refusal:
    """Which constraint binds where some layout fits memory on some count, and the nearest options."""
    request, grid = base.request, _near_most(allowed)
    chosen, gpus = pairs(base.families.unit[alive], np.zeros(alive.shape), grid)
    rows = price_pairs(base, alive[chosen], gpus)
    evaluated += len(rows)
    if not len(rows):
        binding, least = _nothing_fits(base, alive[chosen], gpus)
        return _refused(base, binding, least_bytes=least, evaluated=evaluated)
    in_time = rows.finish_at_confidence_s <= (request.deadline_s or np.inf)
    if request.max_usd is not None and in_time.any():
        cheap = option(base, rows, int(np.argmin(np.where(in_time, rows.cost_usd, np.inf))))
        return _refused(base, Binding.BUDGET, nearest=(cheap,), evaluated=evaluated)
    fastest = option(base, rows, int(np.argmin(rows.finish_at_confidence_s)))
    needed, more = _beyond(base, allowed)
    if needed is None:
        return _refused(base, Binding.DEADLINE, nearest=(fastest,), evaluated=evaluated + more)
    return _refused(
        base,
        Binding.MAX_GPUS,
        nearest=(fastest, needed),
        needs_gpus=needed.gpus,
        evaluated=evaluated + more,
    )


def _beyond(base: Ground, allowed: Array) -> tuple[Option | None, int]:
    """The option that would meet the deadline with more GPUs than allowed."""
    request = replace(base.request, gpu_counts=(), max_usd=None)
    most = max(int(allowed[-1]) * _LOOK_BEYOND, base.cluster.gpus_per_node)
    more = counts(request, base.cluster, limit=most)
    more = more[more > allowed[-1]]
    if not more.size:
        return None, 0
    wider = replace(base, request=request)
    alive, _ = fitting(wider, int(more[-1]))
    found, evaluated = fewest(wider, more, alive)
    return (None if found is None else option(wider, found.row)), evaluated + len(wider.families)


def _nothing_fits(base: Ground, family: Array, gpus: Array) -> tuple[str, float]:
    """Memory, with the least bytes, if there are legal layouts; else the batch, which divides over none."""
    request = base.request
    columns, legal = layouts(
        base.families.take(family), gpus, request.workload, batch_tolerance=request.batch_tolerance
    )
    if not legal.any():
        return Binding.BATCH, np.inf
    chosen = np.flatnonzero(legal)
    _, used = fit_layouts(base, family[chosen], columns.take(chosen))
    return Binding.MEMORY, float(used.min())


def _near_most(allowed: Array) -> Array:
    """Counts to say what comes nearest: the largest ones, those a sixteenth apart, and a few small ones."""
    most = int(allowed[-1])
    fractions = most * np.arange(1, 17) // 16
    return distinct(np.concatenate([allowed[-8:], allowed[np.isin(allowed, fractions)], thin(allowed, 8)]))
