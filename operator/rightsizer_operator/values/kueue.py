"""Kueue's objects: a queue's GPU limit and topology, and the Workload of a queued Job. Pure."""

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.values.quantities import parse_amount
from rightsizer_operator.values.requests import RESOURCES, Amounts
from rightsizer_operator.values.vendors import VENDORS

Object = Mapping[str, Any]

_RESOURCES = frozenset(vendor.resource for vendor in VENDORS)

HOST = "kubernetes.io/hostname"
_PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


class WorkloadCondition(enum.StrEnum):
    """The types of a Workload's conditions, in Kueue's words."""

    QUOTA_RESERVED = "QuotaReserved"
    ADMITTED = "Admitted"
    FINISHED = "Finished"
    PREEMPTED = "Preempted"
    EVICTED = "Evicted"


_EVICTED = (WorkloadCondition.PREEMPTED, WorkloadCondition.EVICTED)
_LACKING = (WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.ADMITTED)


@immutable
class Queue:
    """The LocalQueue that a plan names, if the cluster runs Kueue.

    `gpus` is the most that it can give to one plan, including borrowed quota; None without a known limit.
    `nominal_gpus` is its own quota, which others cannot reclaim.
    `levels` are the node labels of its GPUs' topology, widest first; empty without a topology. `part` is
    the CPU and memory for each of its GPUs, of the resources that it covers.
    """

    name: str
    gpus: int | None = None
    nominal_gpus: int | None = None
    levels: tuple[str, ...] = ()
    part: Amounts = field(default_factory=dict)


@immutable
class KueueWorkload:
    """Kueue's Workload of one Job. A growing elastic Job has a second one, which `replaces` the first."""

    name: str
    active: bool = True
    admitted: bool = False
    finished: bool = False
    replaces: bool = False
    pending_reason: str = ""

    @classmethod
    def of(cls, raw: Object) -> "KueueWorkload":
        """Parse a Workload."""
        conditions = {c["type"]: c for c in raw.get("status", {}).get("conditions", ())}
        return cls(
            name=raw["metadata"]["name"],
            active=raw.get("spec", {}).get("active", True),
            admitted=_is_true(conditions, WorkloadCondition.ADMITTED),
            finished=_is_true(conditions, WorkloadCondition.FINISHED),
            replaces=_REPLACES in raw["metadata"].get("annotations", {}),
            pending_reason=_pending_reason(conditions),
        )


def _is_true(conditions: Mapping[str, Object], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _pending_reason(conditions: Mapping[str, Object]) -> str:
    """Why it is not admitted, from Kueue's messages: a preemption first, then what it lacks now."""
    evicted = [conditions[kind]["message"] for kind in _EVICTED if _is_true(conditions, kind)][:1]
    lacking = [
        conditions[kind]["message"]
        for kind in _LACKING
        if kind in conditions and not _is_true(conditions, kind)
    ][:1]
    messages = (message.strip().rstrip(".") for message in (*evicted, *lacking))
    return "; ".join(dict.fromkeys(message for message in messages if message))


def pending_reason(workloads: Iterable[KueueWorkload]) -> str:
    """Why Kueue has not admitted a Job, or its growth."""
    pending = [workload for workload in workloads if not workload.finished and not workload.admitted]
    return next((w.pending_reason for w in pending if w.pending_reason), "waiting for its queue")


def owners_of(workload: Object) -> set[tuple[str, str]]:
    """The kinds and names of a Workload's owners."""
    return {(o["kind"], o["name"]) for o in workload["metadata"].get("ownerReferences", ())}


def pod_specs_of(workload: Object) -> list[Object]:
    """The pod specs of a Workload."""
    return [pods["template"]["spec"] for pods in workload["spec"].get("podSets", ())]


def cluster_queue_of(local_queue: Object | None) -> str:
    """The ClusterQueue of a LocalQueue; empty if there is none."""
    return str(local_queue["spec"].get("clusterQueue", "")) if local_queue else ""


def topology_of(flavor: Object | None) -> str:
    """The Topology of a ResourceFlavor; empty if it has none."""
    return str((flavor or {}).get("spec", {}).get("topologyName") or "")


def preferred_version(group: Object | None) -> str:
    """The preferred version of an API group; empty if it is not served."""
    return str(group["preferredVersion"]["version"]) if group else ""


def gpus_of(cluster_queue: Object, *, borrows: bool = True) -> int | None:
    """The most GPUs that a ClusterQueue can give to one Workload; None without a limit.

    Not `borrows`: of its own quota.
    """
    borrows = borrows and _has_cohort(cluster_queue)
    limits: list[int] = []
    for group in cluster_queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"] if _has_gpus(group) else ():
            limit = _limit(flavor, borrows=borrows)
            if limit is None:
                return None
            limits.append(limit)
    return max(limits, default=None)


def _has_gpus(group: Object) -> bool:
    return not _RESOURCES.isdisjoint(group["coveredResources"])


def _has_cohort(cluster_queue: Object) -> bool:
    spec = cluster_queue["spec"]
    return bool(spec.get("cohortName") or spec.get("cohort"))


def _limit(flavor: Object, *, borrows: bool) -> int | None:
    quota: Object = next((r for r in flavor["resources"] if r["name"] in _RESOURCES), {})
    borrowed: Any = quota.get("borrowingLimit") if borrows else 0
    try:
        return int(quota.get("nominalQuota", 0)) + int(borrowed)
    except (TypeError, ValueError):  # unlimited borrowing, or a suffixed quantity such as 1k
        return None


def part_of(cluster_queue: Object) -> dict[str, float]:
    """CPU and memory of a ClusterQueue's own quota for each of its GPUs, the least of its flavors.

    Without the resources that it does not cover: Kueue admits no Workload that requests one of these.
    """
    groups = cluster_queue["spec"].get("resourceGroups", ())
    gpus = sum(_nominal(flavor, _RESOURCES) for group in groups for flavor in group["flavors"])
    part = dict[str, float]()
    for name in RESOURCES if gpus else ():
        covering = [group for group in groups if name in group["coveredResources"]]
        found = [_part(flavor, name, gpus) for group in covering for flavor in group["flavors"]]
        if found:
            part[name] = min(found) if _has_gpus(covering[0]) else max(found)
    return part


def _part(flavor: Object, name: str, gpus: float) -> float:
    """For each GPU of this flavor; of one without GPUs, for each that the queue has."""
    return _nominal(flavor, {name}) / (_nominal(flavor, _RESOURCES) or gpus)


def _nominal(flavor: Object, names: Collection[str]) -> float:
    return sum(
        parse_amount(each.get("nominalQuota", 0)) for each in flavor["resources"] if each["name"] in names
    )


def flavors_of(cluster_queue: Object) -> tuple[str, ...]:
    """The ResourceFlavors of a ClusterQueue's GPUs, in order of preference."""
    return tuple(
        flavor["name"]
        for group in cluster_queue["spec"].get("resourceGroups", ())
        if _has_gpus(group)
        for flavor in group["flavors"]
    )


def levels_of(topology: Object) -> tuple[str, ...]:
    """A Topology's node labels, widest level first."""
    return tuple(level["nodeLabel"] for level in topology["spec"]["levels"])


def topology_annotations(queue: Queue | None, *, pods: int) -> dict[str, str]:
    """Pod template annotations that place an attempt's workers close to each other.

    Tensor-parallel ranks share a pod, and a pod fits on one node. Kueue places all pods in one domain of the
    narrowest topology level above the node, or of a wider level if that has no room.
    """
    above = [level for level in (queue.levels if queue else ()) if level != HOST]
    if not above or pods == 1:
        return {}
    return {_PREFERRED_TOPOLOGY: above[-1]}
