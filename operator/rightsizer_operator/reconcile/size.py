"""Sizing a plan on a cluster's GPUs: the size, or what is missing. Pure."""

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.state import ConditionType, State
from rightsizer_api.stated_hardware import stated_hardware
from rightsizer_engine.domain.hardware import MOST_GPUS
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.errors import InputError
from rightsizer_engine.resize.scaling import PlanScaling, in_place_pins
from rightsizer_engine.resize.types import Scaling
from rightsizer_engine.search.pricing.options import price_layout
from rightsizer_engine.search.types import Request
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import gpu_bounds
from rightsizer_launch.worker_spec import in_place_sizes
from rightsizer_operator.reconcile.sizing_response import (
    RunningAttempt,
    Size,
    SizeRequest,
    SizeResponse,
    SizingRefusedError,
    cached_response,
    report_of,
)
from rightsizer_operator.values.inventory import Inventory, clusters
from rightsizer_operator.values.nodes import NodeRequirements
from rightsizer_operator.values.sized import SizedPlan
from rightsizer_operator.values.vendors import VENDORS

_SIMPLER = "set spec.layout, spec.resources.gpuTypes or spec.resources.gpus, so that less is searched"
_GPU_TOLERATIONS = [{"key": v.resource, "operator": "Exists", "effect": "NoSchedule"} for v in VENDORS]


@immutable
class SizingResult:
    """If `sized` is None, `reason` and `message` say why.

    `possible` is false if no number of these GPUs is enough: the plan itself must change.
    """

    sized: SizedPlan | None = None
    possible: bool = True
    reason: str = ConditionType.SIZED
    message: str = ""


def decide(
    resolved: sizing.ResolvedPlan,
    *,
    inventory: Inventory,
    now: dt.datetime,
    created: dt.datetime,
    running: RunningAttempt | None = None,
    quota_gpus: int | None = None,
    inter_gbps: float | None = None,
    size: Size = cached_response,
) -> SizingResult:
    """Size a plan on the GPUs where its pods can be placed now, else on all GPUs; else name the lack.

    InputError and UnsupportedError say what is wrong with the plan itself.
    """
    plan = resolved.plan
    requirements = node_requirements(plan)
    if running is not None:
        requirements = replace(requirements, types=(running.gpu_type,))
    kinds = inventory.sizes(requirements)
    deadline_s = sizing.deadline_s(plan, now=created)
    left_s = None if deadline_s is None else deadline_s - (now - created).total_seconds()
    if left_s is not None and left_s <= 0:
        return SizingResult(reason=State.DEADLINE_PASSED, message="the deadline has passed; give a later one")
    if not kinds:
        return SizingResult(reason=State.NO_SUCH_GPUS, message=_none_usable(requirements, inventory))
    request = _request(resolved, kinds, inter_gbps=inter_gbps, created=created)
    request = _continued(replace(request, deadline_s=None if left_s is None else _floor(left_s)), running)
    elastic = range(0) if running else in_place_sizes(plan)
    size_request = SizeRequest(request, running=running, elastic=elastic)
    try:
        found = _on_free_else_all(size, size_request, inventory, requirements, quota_gpus)
        if found is not None:
            total = {kind: inventory.total(requirements, kind, node) for kind, node in kinds.items()}
            note = _quota_note(size, size_request, found, total, quota_gpus)
            return SizingResult(sized=found.sized, message=found.message + note)
        return _missing(report_of(size, SizeRequest(request)), kinds, inventory, requirements, quota_gpus)
    except SizingRefusedError as refused:
        return SizingResult(reason=State.SIZING_TOO_LONG, message=f"{refused}; {_SIMPLER}")


def _on_free_else_all(
    size: Size,
    size_request: SizeRequest,
    inventory: Inventory,
    requirements: NodeRequirements,
    quota_gpus: int | None,
) -> SizeResponse | None:
    """The size on the GPUs where its pods can be placed now, else on all GPUs; None if these are too few.

    If the best size on all GPUs can be placed now, it is the best there too. The total changes seldom, so
    most plans take a cached answer. Only the rest are sized on the free GPUs, which every launch changes.
    """
    kinds, running = inventory.sizes(requirements), size_request.running
    pod_gpus = running.pod_gpus if running else 0
    total = {kind: inventory.total(requirements, kind, node) for kind, node in kinds.items()}
    widest = _within(size, size_request, total, quota_gpus)
    if widest is None or widest.sized is None:
        return None
    if _is_free(widest.sized, inventory, requirements, pod_gpus):
        return widest
    rooms = {
        kind: inventory.free(requirements, kind, pod_gpus)
        if pod_gpus
        else inventory.room(requirements, kind, node)
        for kind, node in kinds.items()
    }
    found = _within(size, size_request, rooms, quota_gpus)
    return found if found is not None and found.sized else widest


def _is_free(sized: SizedPlan, inventory: Inventory, requirements: NodeRequirements, pod_gpus: int) -> bool:
    """Whether the pods of a sized plan can be placed now."""
    return inventory.free(requirements, sized.gpu_type, pod_gpus or sized.pod_gpus) >= sized.gpus


def _quota_note(
    size: Size,
    size_request: SizeRequest,
    found: SizeResponse,
    total: Mapping[str, int],
    quota_gpus: int | None,
) -> str:
    """That quotas leave less than the reserve that a staged plan would have without them."""
    if quota_gpus is None or found.sized is None or not found.sized.is_staged:
        return ""
    unlimited = _within(size, size_request, total, None)
    reserve = unlimited.sized.reserve_gpus if unlimited and unlimited.sized else 0
    return f"; quotas leave {quota_gpus} GPUs of a reserve of {reserve}" if reserve > quota_gpus else ""


def _none_usable(requirements: NodeRequirements, inventory: Inventory) -> str:
    """That the cluster has none of the GPUs, with what keeps the pods off its nodes."""
    wanted = ", ".join(requirements.types) or "GPUs that the engine knows"
    lacks = inventory.shortfall(requirements)
    return f"no usable {wanted} here; there is {inventory.summary()}" + (f": {lacks}" if lacks else "")


def _within(
    size: Size, size_request: SizeRequest, most: Mapping[str, int], quota_gpus: int | None
) -> SizeResponse | None:
    """The size on at most `most` GPUs of each type; None if there is none of any."""
    limits = [limit for limit in (quota_gpus, size_request.request.max_gpus) if limit is not None]
    most = {kind: min(gpus, *limits) for kind, gpus in most.items()} if limits else most
    if not any(most.values()):
        return None
    return report_of(
        size,
        SizeRequest(
            size_request.request, most=most, running=size_request.running, elastic=size_request.elastic
        ),
    )


def cluster_request(plan: TrainingPlan, *, inventory: Inventory, created: dt.datetime) -> Request:
    """The engine's request for a plan on all GPUs of a cluster, free or not.

    InputError: the cluster has none of the GPUs that the plan may use.
    """
    requirements = node_requirements(plan)
    kinds = inventory.sizes(requirements)
    if not kinds:
        remedy = f"none of them is usable here; there is {inventory.summary()}"
        raise InputError(
            "spec.resources.gpuTypes", value=", ".join(requirements.types) or "any", remedy=remedy
        )
    request = _request(sizing.resolve(plan), kinds, inter_gbps=None, created=created)
    total = {kind: inventory.total(requirements, kind, node) for kind, node in kinds.items()}
    return replace(request, clusters=tuple(replace(c, max_gpus=total[c.gpu.name]) for c in request.clusters))


def at_size(
    resolved: sizing.ResolvedPlan,
    *,
    gpus: int,
    layout: Layout | None,
    running: RunningAttempt,
    inventory: Inventory,
    created: dt.datetime,
    inter_gbps: float | None = None,
    size: Size = cached_response,
) -> SizedPlan | None:
    """A running plan at another size: in `layout` (None: the present one), else in any.

    The deadline and the budget do not count: this size was chosen by measurement. None: no layout fits, or
    the search takes too long.
    """
    request = _running_request(resolved, running, inventory, created=created, inter_gbps=inter_gbps)
    if request is None:
        return None
    unbounded = replace(request, gpu_counts=(gpus,), min_gpus=1, max_gpus=None)
    for pins in ({**request.pinned, **in_place_pins(layout or running.layout)}, request.pinned):
        pinned = {name: value for name, value in pins.items() if name != "dp"}
        try:
            found = report_of(size, SizeRequest(replace(unbounded, pinned=pinned)))
        except SizingRefusedError:
            return None
        if found.sized is not None:
            return found.sized
    return None


def scaling_of(
    resolved: sizing.ResolvedPlan,
    running: RunningAttempt,
    *,
    inventory: Inventory,
    created: dt.datetime,
    inter_gbps: float | None = None,
) -> Scaling | None:
    """The rate of a running plan at other sizes; None if the cluster no longer has its GPUs."""
    request = _running_request(resolved, running, inventory, created=created, inter_gbps=inter_gbps)
    if request is None:
        return None
    return PlanScaling(request=request, option=price_layout(request, running.layout)[0])


def _running_request(
    resolved: sizing.ResolvedPlan,
    running: RunningAttempt,
    inventory: Inventory,
    *,
    created: dt.datetime,
    inter_gbps: float | None,
) -> Request | None:
    requirements = replace(node_requirements(resolved.plan), types=(running.gpu_type,))
    kinds = inventory.sizes(requirements)
    if not kinds:
        return None
    request = _request(resolved, kinds, inter_gbps=inter_gbps, created=created)
    fewest, most = gpu_bounds(resolved.plan)  # those of a resize; the request has those of the first size
    bounds: dict[str, Any] = {"min_gpus": fewest, "max_gpus": most or request.max_gpus}
    return replace(_continued(request, running), deadline_s=None, max_usd=None, **bounds)


def node_requirements(plan: TrainingPlan) -> NodeRequirements:
    """The plan's requirements of nodes and GPUs."""
    template = plan.spec.launch.pod_template
    asked = NodeRequirements.of((template.spec if template else None) or {})
    return replace(
        asked,
        tolerations=(*_GPU_TOLERATIONS, *asked.tolerations),
        types=sizing.gpu_types(plan),
        gpus_per_node=plan.spec.resources.gpus_per_node,
    )


def _request(
    resolved: sizing.ResolvedPlan, kinds: Mapping[str, int], *, inter_gbps: float | None, created: dt.datetime
) -> Request:
    """The request for any number of the cluster's nodes, without spare nodes: a Job has none.

    The interconnect that the plan states replaces the operator's.
    """
    stated = stated_hardware(resolved.plan)
    if stated.inter_node is None:
        stated = replace(stated, inter_node=inter_gbps)
    offered = clusters(kinds, dict.fromkeys(kinds, MOST_GPUS), stated=stated)
    return replace(resolved.request(now=created, clusters=offered), spare_nodes=0)


def _continued(request: Request, running: RunningAttempt | None) -> Request:
    """The request for the rest of a running plan: its batch stays unless the plan now states another."""
    if running is None:
        return request
    workload = replace(request.workload, tokens=max(1.0, request.workload.tokens - running.tokens))
    if abs(workload.global_batch_sequences / running.batch - 1.0) > request.batch_tolerance:
        return replace(request, workload=workload)
    workload = replace(workload, global_batch_sequences=running.batch)
    return replace(request, workload=workload, batch_tolerance=0.0)


def _floor(seconds: float) -> float:
    """Rounded down by less than 0.4 %, so that plans submitted together share a cached result."""
    step = 2.0 ** (math.floor(math.log2(seconds)) - 8)
    return math.floor(seconds / step) * step


def _missing(
    found: SizeResponse,
    kinds: Mapping[str, int],
    inventory: Inventory,
    requirements: NodeRequirements,
    quota_gpus: int | None,
) -> SizingResult:
    """The need for any number of these GPUs, and the cluster's GPUs."""
    if found.sized is None:
        return SizingResult(possible=False, reason=State.NO_PLAN, message=found.message)
    limit = f"; quotas leave {quota_gpus}" if quota_gpus is not None else ""
    gpu_type = found.sized.gpu_type
    needs = f"needs {found.sized.gpus} x {gpu_type} in pods of up to {kinds[gpu_type]}"
    lacks = inventory.shortfall(requirements)
    has = f"the cluster has {inventory.summary()}{limit}" + (f": {lacks}" if lacks else "")
    return SizingResult(reason=State.INSUFFICIENT_GPUS, message=f"{needs}; {has}")
