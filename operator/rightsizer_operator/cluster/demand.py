"""Unmet GPU demand of other workloads: unscheduled pods and Workloads queued in Kueue. Pure.

Pods that no node could run are not counted: they are no reason to shrink a plan.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rightsizer_operator.values.kueue import WorkloadCondition, owners_of, pod_specs_of
from rightsizer_operator.values.metadata import is_being_deleted
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, gpu_type, obstacle, pod_gpus
from rightsizer_operator.values.pods import PodPhase, node_of

Object = Mapping[str, Any]

Owner = tuple[str, str, str]
"""Namespace, kind and name."""

_MAX_KINDS = 256
"""Limit of distinct placement requirements that are compared with the nodes; a cluster has a handful."""


def unscheduled(pods: Iterable[Object], nodes: Collection[ClusterNode]) -> frozenset[str]:
    """GPU types that unscheduled pods wait for, including gated pods."""
    waiting = (
        pod["spec"]
        for pod in pods
        if not node_of(pod)
        and pod.get("status", {}).get("phase", PodPhase.PENDING) == PodPhase.PENDING
        and not is_being_deleted(pod)
    )
    return _types(waiting, nodes)


def queued(
    workloads: Iterable[Object], nodes: Collection[ClusterNode], *, own: Collection[Owner]
) -> frozenset[str]:
    """GPU types that Kueue Workloads without quota wait for, except those of `own` owners."""
    waiting = []
    for workload in workloads:
        conditions = workload.get("status", {}).get("conditions", ())
        true = {condition["type"] for condition in conditions if condition["status"] == "True"}
        owners = {(workload["metadata"]["namespace"], *each) for each in owners_of(workload)}
        settled = true & {WorkloadCondition.QUOTA_RESERVED, WorkloadCondition.FINISHED} or not workload[
            "spec"
        ].get("active", True)
        if not settled and not owners & set(own):
            waiting += pod_specs_of(workload)
    return _types(waiting, nodes)


def _types(pods: Iterable[Object], nodes: Collection[ClusterNode]) -> frozenset[str]:
    """GPU types of the nodes that could run these pods if empty. Identical pods are compared once."""
    kinds: dict[str, tuple[int, NodeRequirements]] = {}
    for pod in pods:
        gpus = pod_gpus(pod)
        if gpus and len(kinds) < _MAX_KINDS:
            rules = {name: pod.get(name) for name in ("nodeSelector", "affinity", "tolerations")}
            kinds.setdefault(json.dumps([gpus, rules], sort_keys=True), (gpus, NodeRequirements.of(pod)))
    return frozenset(
        gpu_type(node.product)
        for node in nodes
        if not node.resource
        and any(gpus <= node.gpus and not obstacle(node, asked) for gpus, asked in kinds.values())
    )
