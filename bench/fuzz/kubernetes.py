"""Random operator inputs: scrapes, annotations, statuses, pod templates, nodes, pods, Workloads, quotas."""

import datetime as dt
from random import Random
from typing import Any

from bench.fuzz.inputs import NUMBERS, Target, damaged, damaged_text

from rightsizer_launch.worker import metrics as agent
from rightsizer_operator.cluster.cache import Cache, quota_left
from rightsizer_operator.cluster.demand import unscheduled
from rightsizer_operator.cluster.occupancy import bound_pods
from rightsizer_operator.measure.agent_metrics import progress_of
from rightsizer_operator.measure.gauges import plan_gauges, plan_info
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.values import names
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.kueue import KueueWorkload
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.requests import Allowance, Loads, allowance, pod_requests
from rightsizer_operator.values.snapshot import AttemptJob, Pod, Snapshot
from rightsizer_operator.values.vendors import NVIDIA

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
PRODUCT = "NVIDIA-H100-80GB-HBM3"
HAS = {"cpu": 96.0, "memory": 2.0**40}
INVENTORY = Inventory(
    nodes=tuple(ClusterNode(name=f"n{i}", product=PRODUCT, gpus=8, allocatable=HAS) for i in range(3)),
    loads=Loads(known=True),
)
WHEN = "2026-11-21T12:00:00Z"
OWNER = {"kind": "TrainingPlan", "name": "demo", "uid": "uid-1", "controller": True}

METADATA = {
    "namespace": "team",
    "name": "demo-a1",
    "uid": "j-1",
    "creationTimestamp": WHEN,
    "labels": {names.LABEL_PLAN: "demo", names.LABEL_ATTEMPT: "1", names.LABEL_ROLE: names.WORKER},
    "annotations": {names.DIGEST: "d", names.ELASTIC: "true", names.GPU_TYPE: "H100", names.NUDGED: WHEN},
}
TRAINER = {"name": "trainer", "resources": {"limits": {NVIDIA.resource: "8"}}}
CONDITION = {"type": "Ready", "status": "False", "lastTransitionTime": WHEN, "reason": "R", "message": "m"}
JOB_STATUS = {"ready": 1, "failed": 1, "conditions": [CONDITION | {"type": "Failed", "status": "True"}]}
NODE = {
    "metadata": {"name": "n1", "labels": {NVIDIA.product_label: PRODUCT, "pool": "a"}},
    "spec": {"unschedulable": False, "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    "status": {"allocatable": {NVIDIA.resource: "8"}, "conditions": [CONDITION]},
}
ENDED = {"exitCode": 1, "message": "out of memory", "finishedAt": WHEN}
POD = {
    "metadata": METADATA,
    "spec": {"containers": [TRAINER], "nodeSelector": {"pool": "a"}, "schedulingGates": [{"name": "g"}]},
    "status": {
        "phase": "Pending",
        "podIP": "10.0.0.1",
        "containerStatuses": [{"state": {"terminated": ENDED}}],
    },
}
WORKLOAD = {"metadata": METADATA, "spec": {"active": True}, "status": {"conditions": [CONDITION]}}
QUOTA = {
    "status": {
        "hard": {f"requests.{NVIDIA.resource}": "8", "requests.cpu": "64"},
        "used": {f"requests.{NVIDIA.resource}": "1", "requests.cpu": "1500m"},
    }
}
TEMPLATE = {
    "metadata": {"labels": {"team": "nlp"}, "annotations": {"note": "x"}},
    "spec": {
        "containers": [
            {
                "name": "trainer",
                "env": [{"name": "LEVEL", "value": "1"}],
                "ports": [{"name": "debug", "containerPort": 8080}],
                "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}},
                "volumeMounts": [{"name": "data", "mountPath": "/ckpt"}],
            }
        ],
        "initContainers": [{"name": "fetch", "image": "busybox"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "pull"}],
        "priorityClassName": "high",
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
                    ]
                }
            }
        },
    },
}
PLAN: dict[str, Any] = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {
        "name": "demo", "namespace": "team", "uid": "uid-1", "generation": 1, "creationTimestamp": WHEN,
        "resourceVersion": "1",
    },
    "spec": {
        "model": {"dimensions": {"layers": 4, "hidden": 192, "ffnHidden": 512, "heads": 4, "vocab": 256}},
        "workload": {"tokens": "10M", "sequenceLength": 128, "globalBatchSequences": 24, "precision": "fp32"},
        "deadline": {"finishWithin": "2h"},
        "resources": {"gpus": 2, "gpusPerNode": 1},
        "layout": {"microBatch": 1},
        "launch": {
            "framework": "ddp", "image": "ghcr.io/acme/train:1.4", "command": ["train.py"],
            "checkpoint": {"path": "/ckpt"},
        },
    },
}  # fmt: skip


def scrape(random: Random) -> str:
    """The agent's metrics with odd values and labels, then damaged."""
    lines = []
    for name in agent.NAMES:
        labels = random.choice(("", "", '{phase="training"}', '{phase=""}', '{rank="1"}', "{phase="))
        value = random.choice((str(random.uniform(0, 1e6)), *NUMBERS))
        lines += [f"{name}{labels} {value}"] * random.choice((0, 1, 1, 1, 2))
    return damaged_text(random, "\n".join(lines) + "\n")


def job(random: Random) -> Any:
    """A Job with our labels, as a tenant can write it."""
    metadata = METADATA | {"resourceVersion": "7", "ownerReferences": [OWNER]}
    spec = {"parallelism": 2, "suspend": False, "template": {"spec": {"containers": [TRAINER]}}}
    raw = damaged(random, {"metadata": metadata, "spec": spec, "status": JOB_STATUS}, typed=True)
    raw["metadata"]["resourceVersion"] = str(random.randrange(1, 10**9))  # the API server writes it
    return raw


def read_quotas(raw: Any) -> None:
    """The GPUs, CPU and memory that quotas leave."""
    left = quota_left(raw, own=0, names=["requests.nvidia.com/gpu"])
    assert min(allowance(raw, (), left_gpus=left).per_gpu(8).values()) >= 0


def read_job(raw: Any) -> None:
    """A Job through the cache."""
    cache = Cache()
    cache.set_job(raw)
    assert AttemptJob.of(raw).gpus_per_pod >= 0
    cache.inventory(without=("team", "x"))


def read_pod(raw: Any) -> None:
    """A pod as a worker, as another workload's and as demand."""
    assert "\x1b" not in Pod.of(raw).message
    bound_pods([raw])
    assert min(pod_requests(raw["spec"]).values()) >= 0
    unscheduled([raw], INVENTORY.nodes)


def sized_plan() -> dict[str, Any]:
    """The plan with the status that its first reconcile writes."""
    actions = reconcile(Snapshot(plan=PLAN, inventory=INVENTORY, now=NOW))
    return PLAN | {"status": dict(next(a.status for a in actions if hasattr(a, "status")))}


def plan_with_template(random: Random) -> Any:
    """A plan whose pod template has values of wrong types: it has no schema."""
    launch = PLAN["spec"]["launch"] | {"podTemplate": damaged(random, TEMPLATE, typed=False)}
    return PLAN | {"spec": PLAN["spec"] | {"launch": launch}}


def read_plan(raw: Any) -> None:
    """One reconcile; a wrong plan is refused in its status, never by an exception."""
    actions = reconcile(Snapshot(plan=raw, inventory=INVENTORY, now=NOW, allowance=Allowance()))
    assert actions, "a new plan always gets a status"
    plan_gauges(raw)
    plan_info(raw)


SIZED = sized_plan()
TARGETS = (
    Target(name="kubernetes: scrape", generate=scrape, parse=lambda text: progress_of(text.encode())),
    Target(name="kubernetes: Job", generate=job, parse=read_job),
    Target(name="kubernetes: pod", generate=lambda r: damaged(r, POD, typed=True), parse=read_pod),
    Target(name="kubernetes: node", generate=lambda r: damaged(r, NODE, typed=True), parse=ClusterNode.of),
    Target(
        name="kubernetes: Workload",
        generate=lambda r: damaged(r, WORKLOAD, typed=True),
        parse=KueueWorkload.of,
    ),
    Target(
        name="kubernetes: quota",
        generate=lambda r: [damaged(r, QUOTA, typed=True)],
        parse=read_quotas,
    ),
    Target(name="kubernetes: pod template", generate=plan_with_template, parse=read_plan),
)  # fmt: skip
