"""Who else waits for GPUs: pods that no node has taken, and what Kueue holds in its queues. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rightsizer_operator.values.inventory import gpu_type
from rightsizer_operator.values.names import GPU_RESOURCE, PRODUCT_LABEL

__all__ = ["ANY", "queued", "unscheduled"]

Object = Mapping[str, Any]

ANY = ""
"""Stands for a GPU of any type: its owner names none."""


def unscheduled(pods: Iterable[Object]) -> frozenset[str]:
    """Types of GPU that pods wait for; those that a gate still holds back wait too."""
    return frozenset(
        _type(pod["spec"])
        for pod in pods
        if not pod["spec"].get("nodeName")
        and pod.get("status", {}).get("phase", "Pending") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
        and _asks(pod["spec"])
    )


def queued(workloads: Iterable[Object], *, own: Collection[str]) -> frozenset[str]:
    """Types of GPU that Workloads of Kueue wait for; `own` are the uids of Jobs that do not count."""
    found = set()
    for workload in workloads:
        said = {c["type"] for c in workload.get("status", {}).get("conditions", ()) if c["status"] == "True"}
        owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences", ())}
        if (
            said & {"QuotaReserved", "Finished"}
            or owners & set(own)
            or not workload["spec"].get("active", True)
        ):
            continue
        pods = [each["template"]["spec"] for each in workload["spec"].get("podSets", ())]
        found |= {_type(pod) for pod in pods if _asks(pod)}
    return frozenset(found)


def _asks(pod: Object) -> bool:
    asked = (
        container.get("resources", {}).get(kind, {}).get(GPU_RESOURCE, 0)
        for container in pod["containers"]
        for kind in ("limits", "requests")
    )
    return any(str(each) != "0" for each in asked)


def _type(pod: Object) -> str:
    """The engine's name of the GPUs that a pod's selector names."""
    return gpu_type(pod.get("nodeSelector", {}).get(PRODUCT_LABEL, "")) or ANY
