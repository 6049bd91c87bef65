"""Kueue as a plan meets it: its queue's limits and topology, and the Workload that waits in it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from rightsizer.values import immutable
from rightsizer_operator.values.names import GPU_RESOURCE

__all__ = [
    "HOST",
    "Queue",
    "Workload",
    "flavors_of",
    "gpus_of",
    "levels_of",
    "topology_notes",
    "waiting_words",
]

Object = Mapping[str, Any]

HOST = "kubernetes.io/hostname"
_NEAR = "kueue.x-k8s.io/podset-preferred-topology"
_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
_WAITS = ("Preempted", "Evicted", "QuotaReserved", "Admitted")


@immutable
class Queue:
    """A LocalQueue that a plan names, where Kueue is there to serve it.

    `gpus` is the most that it can ever give to one plan, borrowed ones included; None: no limit is known.
    `levels` are node labels of the topology of its GPUs, the widest first; empty without one.
    """

    name: str
    gpus: int | None = None
    levels: tuple[str, ...] = ()


@immutable
class Workload:
    """What Kueue holds for one Job (while an elastic one grows, for its growth too)."""

    name: str
    active: bool = True
    admitted: bool = False
    finished: bool = False
    replaces: bool = False
    words: str = ""

    @classmethod
    def of(cls, raw: Object) -> "Workload":
        """The Workload of an API object."""
        said = {c["type"]: c for c in raw.get("status", {}).get("conditions", ())}
        return cls(
            name=raw["metadata"]["name"],
            active=raw.get("spec", {}).get("active", True),
            admitted=_true(said, "Admitted"),
            finished=_true(said, "Finished"),
            replaces=_REPLACES in raw["metadata"].get("annotations", {}),
            words=_words(said),
        )


def _true(said: Mapping[str, Object], kind: str) -> bool:
    return said.get(kind, {}).get("status") == "True"


def _words(said: Mapping[str, Object]) -> str:
    """Why it is not admitted, in Kueue's own words; a preemption first, then what it lacks now."""
    parts = [said[kind]["message"] for kind in _WAITS[:2] if _true(said, kind)][:1]
    parts += [said[kind]["message"] for kind in _WAITS[2:] if kind in said and not _true(said, kind)][:1]
    told = (part.strip().rstrip(".") for part in parts)
    return "; ".join(dict.fromkeys(part for part in told if part))


def waiting_words(workloads: Iterable[Workload]) -> str:
    """Why the queue keeps a Job waiting, or its growth."""
    waiting = [each for each in workloads if not each.finished and not each.admitted]
    return next((each.words for each in waiting if each.words), "waits for its queue")


def gpus_of(cluster_queue: Object) -> int | None:
    """The most GPUs that a ClusterQueue can give to one Workload; None where it sets no limit."""
    limits: list[int] = []
    for group in cluster_queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"] if GPU_RESOURCE in group["coveredResources"] else ():
            limit = _limit(flavor, borrows=_cohort(cluster_queue))
            if limit is None:
                return None
            limits.append(limit)
    return max(limits, default=None)


def _cohort(cluster_queue: Object) -> bool:
    spec = cluster_queue["spec"]
    return bool(spec.get("cohortName") or spec.get("cohort"))


def _limit(flavor: Object, *, borrows: bool) -> int | None:
    quota: Object = next((r for r in flavor["resources"] if r["name"] == GPU_RESOURCE), {})
    borrowed: Any = quota.get("borrowingLimit") if borrows else 0
    try:
        return int(quota.get("nominalQuota", 0)) + int(borrowed)
    except (TypeError, ValueError):  # no limit to borrowing, or a number in another spelling, such as 1k
        return None


def flavors_of(cluster_queue: Object) -> tuple[str, ...]:
    """The ResourceFlavors of its GPUs, in its order of preference."""
    return tuple(
        flavor["name"]
        for group in cluster_queue["spec"].get("resourceGroups", ())
        if GPU_RESOURCE in group["coveredResources"]
        for flavor in group["flavors"]
    )


def levels_of(topology: Object) -> tuple[str, ...]:
    """A Topology's node labels, the widest level first."""
    return tuple(level["nodeLabel"] for level in topology["spec"]["levels"])


def topology_notes(queue: Queue | None, *, pods: int) -> dict[str, str]:
    """Annotations of a pod template that bring an attempt's workers near to each other.

    Tensor parallel ranks share a pod, and a pod is never more than a node. Pods that exchange activations
    or parameters are to be in one domain of the narrowest level above the node; Kueue takes wider ones where
    that has no room.
    """
    above = [level for level in (queue.levels if queue else ()) if level != HOST]
    if not above or pods == 1:
        return {}
    return {_NEAR: above[-1]}
