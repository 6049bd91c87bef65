"""How a plan is sized against what the cluster has: the answer, or what is missing. Pure."""

import datetime as dt
import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer.domain.layout import Layout
from rightsizer.errors import InputError
from rightsizer.resize.scaling import PlanScaling
from rightsizer.resize.types import Scaling
from rightsizer.search.explain import verdict
from rightsizer.search.options import price_layout
from rightsizer.search.plan import plan as size
from rightsizer.search.types import NoPlan, Plan, Request
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_operator.manifests.pod_spec import sizes
from rightsizer_operator.reconcile.elastic_micro_batch import roaming
from rightsizer_operator.values.inventory import Inventory, NodeRequirements, clusters

__all__ = ["RunningAttempt", "SizingResult", "decide", "node_requirements", "pod_gpus", "question"]

_ANY = 16_384  # GPUs of a type that may be bought: the engine's own limit
_GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
_KEPT = ("tp", "pp", "vpp", "cp", "ep", "micro_batch", "sharding", "recompute")  # by an elastic resize


@immutable
class SizingResult:
    """`report` is the sized plan, as status.sizing holds it; without it `reason` and `message` say why.

    `possible` is false where no number of these GPUs would do: the plan itself must change.
    """

    report: Mapping[str, Any] | None = None
    possible: bool = True
    reason: str = "Sized"
    message: str = ""


@immutable
class RunningAttempt:
    """What an attempt in progress fixes: its layout, its batch and the tokens it has done."""

    layout: Layout
    batch: int
    elastic: bool
    gpu_type: str
    tokens: float = 0.0
    gpus: int = 0


def decide(
    plan: TrainingPlan,
    *,
    inventory: Inventory,
    now: dt.datetime,
    created: dt.datetime,
    running: RunningAttempt | None = None,
    quota_gpus: int | None = None,
    inter_gbps: float | None = None,
) -> SizingResult:
    """Size a plan on what is free, else on what there is; else say what is missing.

    InputError and UnsupportedError say what is wrong with the plan itself.
    """
    requirements = node_requirements(plan)
    if running is not None:
        requirements = replace(requirements, types=(running.gpu_type,))
    kinds = inventory.sizes(requirements)
    resolved, within_s = sizing.resolve(plan), sizing.deadline_s(plan, now=created)
    left_s = None if within_s is None else within_s - (now - created).total_seconds()
    if left_s is not None and left_s <= 0:
        return SizingResult(reason="DeadlinePassed", message="the deadline has passed; give a later one")
    if not kinds:
        wanted = ", ".join(requirements.types) or "GPUs that the engine knows"
        return SizingResult(
            reason="NoSuchGPUs", message=f"no usable {wanted} here; there is {inventory.words()}"
        )
    asked = _request(resolved, kinds, inter_gbps=inter_gbps, created=created)
    asked = _continued(replace(asked, deadline_s=None if left_s is None else _floor(left_s)), running)
    own, roams = (running.gpus, range(0)) if running else (0, sizes(plan))
    free = {kind: inventory.free(requirements, kind, node) + own for kind, node in kinds.items()}
    every = {kind: inventory.total(requirements, kind, node) for kind, node in kinds.items()}
    # The best on all that there is is the best on what is free if it fits there: so what changes with every
    # launch of another plan is asked only where it matters, and plans that are alike have one answer.
    widest = _within(asked, every, quota_gpus, running, roams)
    if widest is not None and widest.report and widest.report["gpus"] <= free[widest.report["gpuType"]]:
        return widest
    found = _within(asked, free, quota_gpus, running, roams) or widest
    return found or _missing(asked, size(asked), inventory, quota_gpus)


def _within(
    asked: Request,
    most: Mapping[str, int],
    quota_gpus: int | None,
    running: RunningAttempt | None,
    roams: range,
) -> SizingResult | None:
    """The size on at most so many GPUs of each type, if there is one."""
    limits = [limit for limit in (quota_gpus, asked.max_gpus) if limit is not None]
    most = {kind: min(gpus, *limits) for kind, gpus in most.items()} if limits else most
    offered = tuple(replace(c, max_gpus=most[c.gpu.name]) for c in asked.clusters if most[c.gpu.name])
    return _fitting(_Question(replace(asked, clusters=offered), running, roams)) if offered else None


def question(plan: TrainingPlan, *, inventory: Inventory, created: dt.datetime) -> Request:
    """What the engine is asked about a plan on all that a cluster has, free or not.

    InputError says that it has none of the GPUs that the plan may use.
    """
    requirements = node_requirements(plan)
    kinds = inventory.sizes(requirements)
    if not kinds:
        remedy = f"none of them is usable here; there is {inventory.words()}"
        raise InputError(
            "spec.resources.gpuTypes", value=", ".join(requirements.types) or "any", remedy=remedy
        )
    asked = _request(sizing.resolve(plan), kinds, inter_gbps=None, created=created)
    most = {kind: inventory.total(requirements, kind, node) for kind, node in kinds.items()}
    return replace(asked, clusters=tuple(replace(c, max_gpus=most[c.gpu.name]) for c in asked.clusters))


def at_size(
    plan: TrainingPlan,
    *,
    gpus: int,
    layout: Layout | None,
    running: RunningAttempt,
    inventory: Inventory,
    created: dt.datetime,
    inter_gbps: float | None = None,
) -> Mapping[str, Any] | None:
    """The report of a run in progress at another size: this layout's, or (None) the present one's if it fits.

    The deadline and the budget are not asked again: who wants this size has measured. None: there is no plan.
    """
    asked = _running_request(plan, running, inventory, created=created, inter_gbps=inter_gbps)
    if asked is None:
        return None
    free = replace(asked, gpu_counts=(gpus,), min_gpus=1, max_gpus=None)
    keep = {name: int(getattr(layout or running.layout, name)) for name in _KEPT}
    for pinned in ({**asked.pinned, **keep}, dict(asked.pinned)):
        pinned.pop("dp", None)
        answer = size(replace(free, pinned=pinned))
        if isinstance(answer, Plan):
            return _document(answer)
    return None


def scaling_of(
    plan: TrainingPlan,
    running: RunningAttempt,
    *,
    inventory: Inventory,
    created: dt.datetime,
    inter_gbps: float | None = None,
) -> Scaling | None:
    """How fast a run in progress would be at other sizes; None where its GPUs are not here any more."""
    asked = _running_request(plan, running, inventory, created=created, inter_gbps=inter_gbps)
    if asked is None:
        return None
    return PlanScaling(request=asked, option=price_layout(asked, running.layout)[0])


def _running_request(
    plan: TrainingPlan,
    running: RunningAttempt,
    inventory: Inventory,
    *,
    created: dt.datetime,
    inter_gbps: float | None,
) -> Request | None:
    requirements = replace(node_requirements(plan), types=(running.gpu_type,))
    kinds = inventory.sizes(requirements)
    if not kinds:
        return None
    asked = _request(sizing.resolve(plan), kinds, inter_gbps=inter_gbps, created=created)
    return replace(_continued(asked, running), deadline_s=None, max_usd=None)


def node_requirements(plan: TrainingPlan) -> NodeRequirements:
    """What a plan says about nodes."""
    template = plan.spec.launch.pod_template
    spec: Mapping[str, Any] = (template.spec if template else None) or {}
    resources = plan.spec.resources
    return NodeRequirements(
        selector=spec.get("nodeSelector", {}),
        tolerations=(_GPU_TOLERATION, *spec.get("tolerations", ())),
        types=sizing.gpu_types(plan),
        gpus_per_node=resources.gpus_per_node,
    )


def pod_gpus(layout: Layout, node_gpus: int) -> int:
    """GPUs of a worker pod: as large a part of a node as divides the job and keeps tensor ranks together."""
    fits = [n for n in range(1, min(node_gpus, layout.gpus) + 1) if layout.gpus % n == 0]
    together = [n for n in fits if n % layout.tp == 0]
    return max(together or fits)


def _request(
    resolved: sizing.ResolvedPlan, kinds: Mapping[str, int], *, inter_gbps: float | None, created: dt.datetime
) -> Request:
    """The request for any number of the cluster's nodes, without spare nodes: a Job has none.

    The interconnect that the plan states replaces the measured one.
    """
    stated = sizing.inter_node_bytes_per_s(resolved.plan)
    offered = clusters(
        kinds,
        dict.fromkeys(kinds, _ANY),
        inter_gbps=stated / 1e9 if stated else inter_gbps,
        price=sizing.price_usd_per_gpu_h(resolved.plan),
    )
    return replace(resolved.request(now=created, clusters=offered), spare_nodes=0)


def _continued(asked: Request, running: RunningAttempt | None) -> Request:
    """The question about the rest of a run in progress: its batch stays, unless the plan now says another."""
    if running is None:
        return asked
    workload = replace(asked.workload, tokens=max(1.0, asked.workload.tokens - running.tokens))
    if abs(workload.global_batch_sequences / running.batch - 1.0) > asked.batch_tolerance:
        return replace(asked, workload=workload)
    workload = replace(workload, global_batch_sequences=running.batch)
    return replace(asked, workload=workload, batch_tolerance=0.0)


class _Question:
    """A request with what runs or may become of it, as a key: equal ones are asked once."""

    __slots__ = ("_words", "asked", "roams", "running")

    def __init__(self, asked: Request, running: RunningAttempt | None, roams: range) -> None:
        self.asked, self.running, self.roams = asked, running, roams
        self._words = repr((asked, running, roams))  # requests hold mappings, which have no hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self._words == other._words

    def __hash__(self) -> int:
        return hash(self._words)


@functools.lru_cache(maxsize=256)
def _fitting(question: _Question) -> SizingResult | None:
    """The size, if the request can be met. People ask for the same again and again, and so does this loop."""
    answer = _sized(question)
    return (
        SizingResult(report=_document(answer), message=verdict(answer)) if isinstance(answer, Plan) else None
    )


def _floor(seconds: float) -> float:
    """Rounded down by less than 0.4 %: plans that are submitted together ask the same."""
    step = 2.0 ** (math.floor(math.log2(seconds)) - 8)
    return math.floor(seconds / step) * step


def _sized(question: _Question) -> Plan | NoPlan:
    """The answer; of an elastic run, the same layout on more or fewer GPUs where that is as good."""
    asked, running = question.asked, question.running
    if running is None or not running.elastic:
        answer = size(asked)
        return roaming(asked, answer, question.roams, size) if isinstance(answer, Plan) else answer
    old = running.layout
    kept = size(replace(asked, pinned={**asked.pinned, **{name: int(getattr(old, name)) for name in _KEPT}}))
    free = size(asked)
    if isinstance(kept, Plan) and (not isinstance(free, Plan) or kept.option.gpus <= free.option.gpus):
        return kept
    return free


def _missing(
    asked: Request, answer: Plan | NoPlan, inventory: Inventory, quota_gpus: int | None
) -> SizingResult:
    if isinstance(answer, NoPlan):
        return SizingResult(possible=False, reason="NoPlan", message=verdict(answer))
    limit = f"; quotas leave {quota_gpus}" if quota_gpus is not None else ""
    needs = f"needs {answer.option.gpus} x {answer.option.cluster.gpu.name}"
    nodes = f" in pods of up to {answer.option.cluster.gpus_per_node}"
    return SizingResult(
        reason="InsufficientGPUs", message=f"{needs}{nodes}; the cluster has {inventory.words()}{limit}"
    )


def _document(answer: Plan) -> dict[str, Any]:
    """The report as it is kept: without the causes, which `rightsizer plan` shows."""
    document = sizing.report(answer).model_dump(mode="json", exclude_none=True, by_alias=True)
    document["runnersUp"] = document.get("runnersUp", [])[:3]
    return document
