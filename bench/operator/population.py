"""The cluster's contents: nodes of eight GPUs, and plans of the sizes and lengths that people ask for."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.plan import API_VERSION, KIND
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.values.actions import Apply, PatchStatus
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot

PRODUCT = "NVIDIA-H100-80GB-HBM3"
GPUS = (1, 2, 4)
TOKENS = ("2B", "3B", "5B")
SETTLES = 10  # looks at a plan after which nothing must be left to do
DEADLINES = ("48h", "72h", "5d")


def node(index: int) -> dict[str, Any]:
    """A simulated node, as its kubelet would register it."""
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    name = f"kwok-{index:04}"
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "nvidia.com/gpu.product": PRODUCT}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"capacity": room, "allocatable": room},
    }


def plan(namespace: str, name: str, index: int) -> dict[str, Any]:
    """One of 27 kinds of plan."""
    gpus = GPUS[index % 3]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"name": "gpt2"},
            "workload": {
                "tokens": TOKENS[index // 3 % 3],
                "sequenceLength": 1024,
                "globalBatchSequences": 256,
            },
            "deadline": {"finishWithin": DEADLINES[index // 9 % 3]},
            "resources": {"minGPUs": gpus, "maxGPUs": gpus},
            "launch": {
                "framework": "ddp",
                "image": "ghcr.io/acme/train:1.4",
                "command": ["train.py"],
                "checkpoint": {"path": f"/checkpoints/{name}"},
            },
        },
    }


def children(raw: Mapping[str, Any], nodes: int) -> list[dict[str, Any]]:
    """The operator's objects for a plan, without an owner, because the plan does not exist."""
    metadata = {**raw["metadata"], "uid": f"uid-{raw['metadata']['name']}", "generation": 1}
    now = dt.datetime.now(dt.UTC)
    metadata["creationTimestamp"] = now.isoformat()
    known = tuple(ClusterNode.of(_ready(node(index))) for index in range(nodes))
    snapshot = Snapshot(plan={**raw, "metadata": metadata}, inventory=Inventory(nodes=known), now=now)
    made = [dict(action.child) for action in reconcile(snapshot) if isinstance(action, Apply)]
    for child in made:
        child["metadata"] = {k: v for k, v in child["metadata"].items() if k != "ownerReferences"}
    return made


def finished(namespace: str, name: str, index: int) -> dict[str, Any]:
    """A finished plan without children: only its status is left."""
    raw = plan(namespace, name, index)
    raw["spec"]["deadline"] = {"finishBy": "2030-01-01T00:00:00Z"}
    now = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
    metadata = {**raw["metadata"], "uid": "uid", "generation": 1, "creationTimestamp": now.isoformat()}
    snapshot = Snapshot(
        plan={**raw, "metadata": metadata},
        inventory=Inventory(nodes=(ClusterNode.of(_ready(node(0))),)),
        now=now,
    )
    for _ in range(SETTLES):
        actions = reconcile(snapshot)
        for action in actions:
            if isinstance(action, PatchStatus):
                snapshot = replace(snapshot, plan={**snapshot.plan, "status": action.status})
            elif isinstance(action, Apply) and action.child["kind"] == "Job":
                ended = [{"type": "Complete", "status": "True", "lastTransitionTime": now.isoformat()}]
                snapshot = replace(
                    snapshot, jobs=(AttemptJob.of({**action.child, "status": {"conditions": ended}}),)
                )
        if not actions:
            return {**raw, "status": snapshot.plan["status"]}
        if "Complete" in {c["reason"] for c in snapshot.status.get("conditions", ())}:
            snapshot = replace(snapshot, jobs=())  # its time to live is over
    raise AssertionError(f"never settles: {actions}")


def renamed(child: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The child for another plan, whose name is in names, labels, selectors and addresses."""
    return _renamed(child, old, new)


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Mapping):
        return {key: _renamed(each, old, new) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, old, new) for each in value]
    return value


def _ready(raw: dict[str, Any]) -> dict[str, Any]:
    status = {**raw["status"], "conditions": [{"type": "Ready", "status": "True"}]}
    return {**raw, "status": status}
