"""The sizing decision: the fewest GPUs and the layout that meet the deadline; or why none do."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Method, Precision
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.bargain import bargain
from rightsizer_engine.search.cluster_search import ClusterResult, Infeasible, search_cluster
from rightsizer_engine.search.comparison import (
    curve,
    fits_on_fewer,
    nearby_rows,
    on_fewer_gpus,
    on_more_gpus,
    other_parallelism,
)
from rightsizer_engine.search.pricing.options import options
from rightsizer_engine.search.reasons import no_plan_reason, plan_reasons
from rightsizer_engine.search.stacks import best_stacks_first
from rightsizer_engine.search.staged import stage
from rightsizer_engine.search.types import Binding, NoPlan, Objective, Option, Plan, Request

_PEAK_OF_PRECISION = {
    Precision.BF16: "bf16_flop_per_s",
    Precision.FP16: "fp16_flop_per_s",
    Precision.FP8: "fp8_flop_per_s",
    Precision.NVFP4: "fp4_flop_per_s",
    Precision.FP32: "fp32_flop_per_s",
}
"""A GPU supports a precision if this peak rate is above 0."""


_BINDING_ORDER = (
    Binding.BUDGET,
    Binding.MAX_GPUS,
    Binding.DEADLINE,
    Binding.BATCH,
    Binding.MEMORY,
    Binding.LAYOUT,
)
"""If every cluster fails, the cluster whose binding constraint comes first here is reported."""


def size(request: Request, *, compared: bool = True, explained: bool = True) -> Plan | NoPlan:
    """The cheapest option that meets every constraint of the request at its confidence.

    On each cluster: the fewest GPUs, the lowest cost or the earliest finish, as the request's objective says;
    of an elastic request, the smallest opening size from there on. The objective gpus without a deadline
    takes the fewest GPUs that fit, at up to FAIR_WITHIN over the least cost. Among clusters: the lowest cost;
    of those without a price, which come last, the fewest GPU-hours; with the objective time, the earliest
    finish. `compared=False` leaves out runners-up, reasons and the curve; the option is the same. Without
    `explained` a NoPlan has no reason and no options. A request with `stacks` gets the best of them.
    """
    _validate(request)
    if not request.stacks:
        return _sized(request, compared=compared, explained=explained)
    ranked = best_stacks_first(request, lambda one: _sized(one, compared=False, explained=False))
    decision = _sized(ranked[0], compared=compared, explained=explained)
    for other in ranked[1:]:
        if isinstance(decision, Plan):
            break
        found = _sized(other, compared=compared, explained=False)
        decision = found if isinstance(found, Plan) else decision
    return decision


def _sized(request: Request, *, compared: bool, explained: bool = True) -> Plan | NoPlan:
    """The plan for the request's framework. A NoPlan that is not `explained` has no reason."""
    missing = _unsupported_method(request)
    if missing:
        return NoPlan(request=request, binding=Binding.FRAMEWORK, reason=missing)
    able = [cluster for cluster in request.clusters if _has_precision(request, cluster)]
    if not able:
        return NoPlan(request=request, binding=Binding.PRECISION, reason=_no_precision_reason(request))
    outcomes: list[ClusterResult | Infeasible] = []
    for cluster in able:  # explaining a failure costs a second search: only if no cluster succeeds
        won = any(isinstance(a, ClusterResult) for a in outcomes)
        outcomes.append(_sized_on(request, cluster, explained=explained and not won))
    evaluated = sum(a.evaluated for a in outcomes)
    results = [a for a in outcomes if isinstance(a, ClusterResult)]
    if not results:
        refusals = [a for a in outcomes if isinstance(a, Infeasible)]
        if not explained:
            return NoPlan(request=request, binding=refusals[0].binding, reason="")
        return _no_plan(request, refusals, evaluated)
    results.sort(key=_rank)
    return _plan(request, results, evaluated) if compared else _option_only(request, results[0], evaluated)


def _sized_on(request: Request, cluster: Cluster, *, explained: bool) -> ClusterResult | Infeasible:
    """The cluster's result: staged where the job is elastic and gains by it, else of a fixed size."""
    never_resized = replace(request, elastic=False)
    if request.elastic and request.deadline_s is not None:
        found = search_cluster(request, cluster, explained=False)
        if isinstance(found, ClusterResult):
            decision = search_cluster(never_resized, cluster, explained=False)
            fixed = decision if isinstance(decision, ClusterResult) else None
            chosen = stage(found, fixed)
            if chosen is not None:
                return chosen
    return search_cluster(never_resized, cluster, explained=explained)


def _option_only(request: Request, result: ClusterResult, evaluated: int) -> Plan:
    """The plan without runners-up, reasons and curve."""
    chosen, *_ = options([(result.context, result.best.row)])
    return Plan(
        request=request,
        option=chosen,
        runners_up=(),
        reasons=(),
        binding=_binding(
            request, chosen, smaller=result.best.fewer_gpus is not None or fits_on_fewer(result)
        ),
        curve=(),
        layouts_evaluated=evaluated,
        staging=result.staging,
    )


def _validate(request: Request) -> None:
    """Reject invalid requests."""
    if not request.clusters:
        raise InputError("resources.gpuTypes", value=(), remedy="name at least one GPU type")
    if not 0.0 < request.confidence < 1.0:
        raise InputError("deadline.confidence", value=request.confidence, remedy="must be between 0 and 1")
    if not request.workload.tokens > 0:
        raise InputError("workload.tokens", value=request.workload.tokens, remedy="must be above 0")
    if request.workload.sequence_tokens < 1 or request.workload.global_batch_sequences < 1:
        batch = (request.workload.sequence_tokens, request.workload.global_batch_sequences)
        raise InputError("workload.globalBatchTokens", value=batch, remedy="needs a token and a sequence")
    if request.deadline_s is not None and not request.deadline_s > 0:
        raise InputError("deadline", value=request.deadline_s, remedy="must lie in the future")


def _unsupported_method(request: Request) -> str:
    """Why the framework cannot train with this method; empty if it can."""
    framework, method = request.framework, request.workload.method
    able = {Method.LORA: framework.can_lora, Method.QLORA: framework.can_qlora}
    if able.get(method, framework.can_pretrain):
        return ""
    return f"framework: {framework.name} cannot train with {method}; choose one that can, or another method"


def _has_precision(request: Request, cluster: Cluster) -> bool:
    """Whether the GPU has matmuls in the workload's precision. Emulation is too slow to plan with."""
    return bool(getattr(cluster.gpu, _PEAK_OF_PRECISION[request.workload.precision]) > 0)


def _no_precision_reason(request: Request) -> str:
    gpus = ", ".join(cluster.gpu.name for cluster in request.clusters)
    first = request.clusters[0].gpu
    instead = next(
        p for p in (Precision.BF16, Precision.FP16, Precision.FP32) if getattr(first, _PEAK_OF_PRECISION[p])
    )
    return f"precision: {gpus}: no {request.workload.precision} matmuls; choose {instead} or another GPU type"


def _rank(result: ClusterResult) -> tuple[bool, float, float]:
    """Prices compare with prices only: clusters without one come last, by GPU-hours."""
    row, request = result.best.row, result.context.request
    finish_s, usd = float(row.finish_s[0]), float(row.cost_usd[0])
    if request.objective is Objective.TIME:
        return False, finish_s, float(row.gpus[0])
    unpriced = np.isnan(usd)
    return bool(unpriced), float(row.gpus[0]) * finish_s if unpriced else usd, finish_s


def _no_plan(request: Request, refusals: list[Infeasible], evaluated: int) -> NoPlan:
    """The refusal of the cluster that came closest."""

    def nearness(refusal: Infeasible) -> tuple[int, float]:
        late = refusal.nearest[0].finish_at_confidence_s if refusal.nearest else refusal.least_bytes
        return _BINDING_ORDER.index(refusal.binding), late

    ranked = sorted(refusals, key=nearness)
    closest = ranked[0]
    return NoPlan(
        request=request,
        binding=closest.binding,
        reason=no_plan_reason(
            request,
            closest.cluster,
            closest.binding,
            nearest=closest.nearest,
            least_bytes=closest.least_bytes,
            needs_gpus=closest.needs_gpus,
        ),
        nearest=tuple(option for refusal in ranked for option in refusal.nearest),
        needs_gpus=closest.needs_gpus,
        layouts_evaluated=evaluated,
    )


def _plan(request: Request, results: list[ClusterResult], evaluated: int) -> Plan:
    first = results[0]
    nearby = nearby_rows(first)
    neighbours = {
        "same": other_parallelism(first, nearby),
        "more": on_more_gpus(first, nearby),
        "fewer": on_fewer_gpus(first, nearby),
        "bargain": bargain(first, nearby),
    }
    named_rows = {name: row for name, row in neighbours.items() if row is not None}
    rows = [(w.context, w.best.row) for w in results]
    rows += [(first.context, row) for row in named_rows.values()]
    chosen, *alternatives = options(rows)
    other_clusters, named = (
        tuple(alternatives[: len(results) - 1]),
        dict(zip(named_rows, alternatives[len(results) - 1 :], strict=True)),
    )
    fewer = named.get("fewer")
    return Plan(
        request=request,
        option=chosen,
        runners_up=(*other_clusters, *_distinct(named.values())),
        reasons=plan_reasons(
            request,
            chosen,
            fewer=fewer,
            same=named.get("same"),
            bargain=named.get("bargain"),
            ruled_out=first.ruled_out,
            other_clusters=other_clusters,
        ),
        binding=_binding(request, chosen, smaller=fewer is not None),
        curve=tuple(point for result in results for point in curve(result)),
        layouts_evaluated=evaluated + len(nearby),
        staging=first.staging,
    )


def _distinct(named: Iterable[Option]) -> tuple[Option, ...]:
    """Each layout once: the cheapest neighbour may also be the next larger one."""
    return tuple({option.layout: option for option in named}.values())


def _binding(request: Request, chosen: Option, *, smaller: bool) -> str:
    """The constraint that prevents a smaller plan. `smaller`: some layout fits on fewer GPUs."""
    if request.objective is Objective.COST or (request.deadline_s is None and smaller):
        return Binding.COST
    if smaller or (request.deadline_s is None and request.objective is Objective.TIME):
        return Binding.DEADLINE
    return Binding.MEMORY if chosen.gpus > max(1, request.min_gpus) else Binding.MIN_GPUS
