"""Unmet GPU demand of other workloads: unscheduled pods and Workloads queued in Kueue. Pure.

Pods that no node could run are not counted: they are no reason to shrink a plan.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rightsizer_operator.values.inventory import Node, gpu_type, tolerates
from rightsizer_operator.values.names import GPU_RESOURCE
from rightsizer_operator.values.quantities import parse_quantity

__all__ = ["queued", "unscheduled"]

Object = Mapping[str, Any]

_MAX_KINDS = 256
"""Limit of distinct placement requirements that are compared with the nodes; a cluster has a handful."""


def unscheduled(pods: Iterable[Object], nodes: Collection[Node]) -> frozenset[str]:
    """GPU types that unscheduled pods wait for, including gated pods."""
    waiting = (
        pod["spec"]
        for pod in pods
        if not pod["spec"].get("nodeName")
        and pod.get("status", {}).get("phase", "Pending") == "Pending"
        and "deletionTimestamp" not in pod["metadata"]
    )
    return _types(waiting, nodes)


def queued(workloads: Iterable[Object], nodes: Collection[Node], *, own: Collection[str]) -> frozenset[str]:
    """GPU types that Kueue Workloads without quota wait for; `own` are the uids of Jobs to ignore."""
    waiting = []
    for workload in workloads:
        conditions = workload.get("status", {}).get("conditions", ())
        true = {condition["type"] for condition in conditions if condition["status"] == "True"}
        owners = {owner["uid"] for owner in workload["metadata"].get("ownerReferences", ())}
        settled = true & {"QuotaReserved", "Finished"} or not workload["spec"].get("active", True)
        if not settled and not owners & set(own):
            waiting += [pods["template"]["spec"] for pods in workload["spec"].get("podSets", ())]
    return _types(waiting, nodes)


def _types(pods: Iterable[Object], nodes: Collection[Node]) -> frozenset[str]:
    """GPU types of the nodes that could run these pods if empty. Identical pods are compared once."""
    kinds: dict[str, Object] = {}
    for pod in pods:
        if _gpus(pod) and len(kinds) < _MAX_KINDS:
            rules = {name: pod.get(name) for name in ("nodeSelector", "affinity", "tolerations")}
            kinds.setdefault(json.dumps([_gpus(pod), rules], sort_keys=True), pod)
    return frozenset(
        gpu_type(node.product)
        for node in nodes
        if gpu_type(node.product) and any(_could_run(pod, node) for pod in kinds.values())
    )


def _gpus(pod: Object) -> int:
    """GPUs that a pod requests."""
    resources = [container.get("resources", {}) for container in pod["containers"]]
    return sum(
        max(parse_quantity(resource.get(kind, {}).get(GPU_RESOURCE, 0)) for kind in ("limits", "requests"))
        for resource in resources
    )


def _could_run(pod: Object, node: Node) -> bool:
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms")
    return (
        _gpus(pod) <= node.gpus
        and not node.cordoned
        and (pod.get("nodeSelector") or {}).items() <= {**node.labels}.items()
        and all(tolerates(pod.get("tolerations") or (), taint) for taint in node.taints)
        and (terms is None or any(_matches(term.get("matchExpressions") or (), node) for term in terms))
    )


def _matches(expressions: Iterable[Object], node: Node) -> bool:
    """Whether a node's labels match; an unknown operator counts as matching."""
    for expression in expressions:
        value, values = node.labels.get(expression["key"]), expression.get("values") or ()
        verdict = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not verdict.get(expression["operator"], True):
            return False
    return True
