"""The decision: the fewest GPUs, and the layout, that meet the deadline; or why there are none."""

from dataclasses import dataclass, replace

import numpy as np

from rightsizer import cost
from rightsizer.columns import Array
from rightsizer.errors import InputError
from rightsizer.hardware import Cluster
from rightsizer.options import option
from rightsizer.outcome import Binding, CurvePoint, NoPlan, Option, Plan, Request
from rightsizer.pricing import Ground, Rows, fit_layouts, ground, price_pairs
from rightsizer.reasons import no_plan_reason, plan_reasons
from rightsizer.search import Found, best, cheapest, counts, fewest, fitting, meets, rows_at, thin
from rightsizer.space import families, layouts
from rightsizer.workload import Method

__all__ = ["Binding", "CurvePoint", "NoPlan", "Option", "Plan", "Request", "plan"]

_LOOK_BEYOND = 8
"""How far above the allowed GPUs the search goes to say how many would do."""

_CURVE_POINTS = 12
_CURVE_FAMILIES = 128
_RUNNERS_UP = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What one cluster can do: a chosen row, or what binds and what came nearest."""

    ground: Ground | None
    cluster: Cluster
    found: Found | None = None
    alive: Array | None = None
    allowed: Array | None = None
    binding: str = ""
    detail: float = 0.0
    nearest: tuple[Option, ...] = ()
    needs_gpus: int | None = None
    evaluated: int = 0


def plan(request: Request) -> Plan | NoPlan:
    """The cheapest option that meets every constraint of the request at its confidence.

    On each cluster that is the fewest GPUs; among clusters the lowest cost, or the fewest GPUs where a price
    is missing. Without a deadline it is the fastest among those that cost nearly the least.
    """
    _check(request)
    missing = _not_able(request)
    if missing:
        return NoPlan(request=request, binding=Binding.FRAMEWORK, reason=missing)
    answers = [_on_cluster(request, cluster) for cluster in request.clusters]
    evaluated = sum(a.evaluated for a in answers)
    winners = [a for a in answers if a.found is not None]
    if not winners:
        return _no_plan(request, answers, evaluated)
    winners.sort(key=lambda a: _rank(a, all_priced=all(_usd(w) is not None for w in winners)))
    return _plan(request, winners, answers, evaluated)


def _check(request: Request) -> None:
    """Refuse what no search can mean."""
    if not request.clusters:
        raise InputError("resources.gpuTypes", value=(), remedy="name at least one GPU type")
    if not 0.0 < request.confidence < 1.0:
        raise InputError("deadline.confidence", value=request.confidence, remedy="must be between 0 and 1")
    if not request.workload.tokens > 0:
        raise InputError("workload.tokens", value=request.workload.tokens, remedy="must be above 0")
    if request.workload.sequence_tokens < 1 or request.workload.global_batch_sequences < 1:
        batch = (request.workload.sequence_tokens, request.workload.global_batch_sequences)
        raise InputError(
            "workload.globalBatchTokens", value=batch, remedy="at least one token and one sequence"
        )
    if request.deadline_s is not None and not request.deadline_s > 0:
        raise InputError("deadline", value=request.deadline_s, remedy="must lie in the future")


def _not_able(request: Request) -> str:
    """What the framework cannot train at all, in words; empty if it can."""
    framework, method = request.framework, request.workload.method
    able = {Method.LORA: framework.can_lora, Method.QLORA: framework.can_qlora}
    able[Method.PRETRAIN] = able[Method.FINETUNE] = framework.can_pretrain
    if able[method]:
        return ""
    return f"{framework.name} cannot train with {method}; choose a framework that can, or another method"


def _on_cluster(request: Request, cluster: Cluster) -> _Answer:
    """The search without host memory, and again with it only if nothing fits otherwise."""
    answer = _searched(request, cluster, offload=False)
    can = request.framework.can_offload_optimizer or request.framework.can_offload_parameters
    if answer.found is None and answer.binding == Binding.MEMORY and can:
        offloaded = _searched(request, cluster, offload=True)
        evaluated = answer.evaluated + offloaded.evaluated
        if offloaded.binding != Binding.MEMORY:
            return replace(offloaded, evaluated=evaluated)
    return answer


def _searched(request: Request, cluster: Cluster, *, offload: bool) -> _Answer:
    some = families(
        request.architecture,
        request.workload,
        cluster,
        request.framework,
        pinned=request.pinned,
        offload=offload,
    )
    allowed = counts(request, cluster)
    if not len(some):
        return _Answer(ground=None, cluster=cluster, binding=Binding.LAYOUT)
    if not allowed.size:
        return _Answer(ground=None, cluster=cluster, binding=Binding.MAX_GPUS)
    base = ground(request, cluster, some)
    alive, least = fitting(base, int(allowed[-1]))
    search = cheapest if request.deadline_s is None else fewest
    found, evaluated = search(base, allowed, alive)
    evaluated += len(some)
    if found is None:
        return _why_not(base, allowed, alive, least, evaluated)
    return _Answer(
        ground=base, cluster=cluster, found=found, alive=alive, allowed=allowed, evaluated=evaluated
    )


def _why_not(base: Ground, allowed: Array, alive: Array, least: float, evaluated: int) -> _Answer:
    """Which constraint binds, and the nearest options."""
    cluster, request = base.cluster, base.request
    if not alive.size:
        return _Answer(
            ground=base, cluster=cluster, binding=Binding.MEMORY, detail=least, evaluated=evaluated
        )
    rows = _grid_rows(base, _near_most(allowed), alive)
    evaluated += len(rows)
    if not len(rows):
        binding, least = _nothing_fits(base, _near_most(allowed), alive)
        return _Answer(ground=base, cluster=cluster, binding=binding, detail=least, evaluated=evaluated)
    fastest = int(np.argmin(rows.finish_at_confidence_s))
    nearest = [option(base, rows, fastest)]
    in_time = rows.finish_at_confidence_s <= (request.deadline_s or np.inf)
    if request.max_usd is not None and in_time.any():
        affordable = np.where(in_time, rows.cost_usd, np.inf)
        cheap = option(base, rows, int(np.argmin(affordable)))
        return _Answer(
            ground=base, cluster=cluster, binding=Binding.BUDGET, nearest=(cheap,), evaluated=evaluated
        )
    needed, more = _beyond(base, allowed)
    if needed is not None:
        nearest.append(needed)
    return _Answer(
        ground=base,
        cluster=cluster,
        binding=Binding.DEADLINE if needed is None else Binding.MAX_GPUS,
        nearest=tuple(nearest),
        needs_gpus=None if needed is None else needed.gpus,
        evaluated=evaluated + more,
    )


def _beyond(base: Ground, allowed: Array) -> tuple[Option | None, int]:
    """The option that would meet the deadline with more GPUs than allowed."""
    request = replace(base.request, gpu_counts=(), max_usd=None)
    most = int(allowed[-1]) * _LOOK_BEYOND
    more = counts(request, base.cluster, limit=max(most, base.cluster.gpus_per_node))
    more = more[more > allowed[-1]]
    if not more.size:
        return None, 0
    wider = replace(base, request=request)
    alive, _ = fitting(wider, int(more[-1]))
    found, evaluated = fewest(wider, more, alive)
    return (None if found is None else option(wider, found.row)), evaluated + len(wider.families)


def _nothing_fits(base: Ground, grid: Array, alive: Array) -> tuple[str, float]:
    """Memory, with the least bytes, if there are legal layouts; else the batch that divides over none."""
    divides = grid[:, None] % base.families.unit[alive][None, :] == 0
    count, family = np.nonzero(divides)
    columns, legal = layouts(
        base.families.take(alive[family]),
        grid[count],
        base.request.workload,
        batch_tolerance=base.request.batch_tolerance,
    )
    if not legal.any():
        return Binding.BATCH, np.inf
    _, used = fit_layouts(base, columns.take(np.flatnonzero(legal)), int(legal.sum()))
    return Binding.MEMORY, float(used.min())


def _near_most(allowed: Array) -> Array:
    """Counts to say what comes nearest: the largest ones, those a sixteenth apart, and a few small ones."""
    most = int(allowed[-1])
    fractions = most * np.arange(1, 17) // 16
    return np.unique(np.concatenate([allowed[-8:], allowed[np.isin(allowed, fractions)], thin(allowed, 8)]))


def _grid_rows(base: Ground, grid: Array, alive: Array) -> Rows:
    """Every legal row on the counts of `grid`."""
    divides = grid[:, None] % base.families.unit[alive][None, :] == 0
    count, family = np.nonzero(divides)
    return price_pairs(base, alive[family], grid[count])


def _usd(answer: _Answer) -> float | None:
    return cost.price_usd_per_gpu_h(answer.cluster)


def _rank(answer: _Answer, *, all_priced: bool) -> tuple[float, float]:
    assert answer.found is not None  # noqa: S101 - only winners are ranked
    row = answer.found.row
    first = float(row.cost_usd[0]) if all_priced else float(row.gpus[0])
    return first, float(row.finish_s[0])


def _no_plan(request: Request, answers: list[_Answer], evaluated: int) -> NoPlan:
    """The answer of the cluster that came nearest."""
    order = (
        Binding.BUDGET, Binding.MAX_GPUS, Binding.DEADLINE, Binding.BATCH, Binding.MEMORY, Binding.LAYOUT,
    )  # fmt: skip
    with_options = [a for a in answers if a.nearest]
    pool = with_options or answers
    closest = min(
        pool,
        key=lambda a: (
            order.index(a.binding),
            a.nearest[0].finish_at_confidence_s if a.nearest else a.detail,
        ),
    )
    nearest = tuple(o for a in sorted(pool, key=lambda a: a is not closest) for o in a.nearest)
    return NoPlan(
        request=request,
        binding=closest.binding,
        reason=no_plan_reason(
            request,
            closest.cluster,
            closest.binding,
            nearest=closest.nearest,
            least_bytes=closest.detail,
            needs_gpus=closest.needs_gpus,
        ),
        nearest=nearest,
        needs_gpus=closest.needs_gpus,
        layouts_evaluated=evaluated,
    )


def _plan(request: Request, winners: list[_Answer], answers: list[_Answer], evaluated: int) -> Plan:
    first = winners[0]
    assert first.ground is not None and first.found is not None  # noqa: S101, PT018 - a winner has both
    assert first.alive is not None and first.allowed is not None  # noqa: S101, PT018
    chosen = option(first.ground, first.found.row)
    fewer = _neighbour(first, -1)
    more = _neighbour(first, +1)
    others = [option(w.ground, w.found.row) for w in winners[1:] if w.ground and w.found]
    same = _other_kind(first, chosen)
    runners = [o for o in (*others, same, more, fewer) if o is not None]
    points, rows = _curve(first)
    return Plan(
        request=request,
        option=chosen,
        runners_up=tuple(runners[: max(_RUNNERS_UP, len(others) + 2)]),
        reasons=plan_reasons(request, chosen, fewer=fewer, same=same, others=tuple(others)),
        binding=_binding(request, chosen, fewer),
        curve=points,
        layouts_evaluated=evaluated + rows,
    )


def _binding(request: Request, chosen: Option, fewer: Option | None) -> str:
    """What keeps the plan from being smaller."""
    if request.deadline_s is None:
        return Binding.COST
    if fewer is None:
        return Binding.MEMORY if chosen.gpus > request.min_gpus and chosen.gpus > 1 else Binding.MIN_GPUS
    return Binding.DEADLINE


def _neighbour(answer: _Answer, direction: int) -> Option | None:
    """The best option that fits on the next count below (-1), or about a quarter above (+1)."""
    assert answer.ground is not None and answer.found is not None  # noqa: S101, PT018
    assert answer.alive is not None and answer.allowed is not None  # noqa: S101, PT018
    gpus = int(answer.found.row.gpus[0])
    if direction < 0:
        candidates = answer.allowed[answer.allowed < gpus][::-1][:3]
    else:
        candidates = answer.allowed[answer.allowed >= gpus * 1.25][:1]
    for count in candidates:
        rows = rows_at(answer.ground, int(count), answer.alive)
        index = best(rows, np.ones(len(rows), dtype=bool))
        if index is not None:
            return option(answer.ground, rows, index)
    return None


def _other_kind(answer: _Answer, chosen: Option) -> Option | None:
    """The best plan on the same GPUs with other kinds of parallelism, that meets the request too."""
    assert answer.ground is not None and answer.found is not None  # noqa: S101, PT018
    rows = answer.found.at_count
    layout = chosen.layout
    differs = np.zeros(len(rows), dtype=bool)
    for name in ("tp", "pp", "cp", "ep"):
        differs |= (getattr(rows.layout, name) > 1) != (getattr(layout, name) > 1)
    differs |= rows.layout.sharding != layout.sharding
    index = best(rows, meets(rows, answer.ground.request) & differs)
    return None if index is None else option(answer.ground, rows, index)


def _curve(answer: _Answer) -> tuple[tuple[CurvePoint, ...], int]:
    """Finish and cost over GPU counts, from the families that did best at the chosen count."""
    assert answer.ground is not None and answer.found is not None  # noqa: S101, PT018
    assert answer.allowed is not None  # noqa: S101
    at_count, gpus = answer.found.at_count, int(answer.found.row.gpus[0])
    order = np.argsort(at_count.finish_s)[:_CURVE_FAMILIES]
    near = answer.allowed[(answer.allowed * 4 >= gpus) & (answer.allowed <= gpus * 4)]
    grid = np.unique(np.append(thin(near, _CURVE_POINTS), gpus))
    rows = _grid_rows(answer.ground, grid, at_count.family[order])
    points = []
    for count in grid:
        index = best(rows, rows.gpus == count)
        if index is not None:
            usd = float(rows.cost_usd[index])
            points.append(
                CurvePoint(
                    cluster=answer.cluster,
                    gpus=int(count),
                    finish_s=float(rows.finish_s[index]),
                    finish_at_confidence_s=float(rows.finish_at_confidence_s[index]),
                    cost_usd=None if np.isnan(usd) else usd,
                )
            )
    return tuple(points), len(rows)
