"""Kueue's real controller, and queues of a test's own."""

import json

import pytest

GROUP = "kueue.x-k8s.io"
RACK = "rightsizer.test/rack"


def _object(kind, name, **fields):
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": {"name": name}, **fields}


@pytest.fixture(scope="module")
def kueue(cluster):
    """Kueue with elastic Jobs switched on. One that runs already stays; else it goes before nodes are killed,

    because its webhooks hold up every Job while they are away.
    """
    was_up = bool(cluster.kubectl("get", "namespace", "kueue-system", "--ignore-not-found"))
    cluster.control("install", "kueue")
    yield
    if not was_up:
        cluster.control("uninstall", "kueue")


@pytest.fixture(scope="module")
def priorities(cluster, kueue):
    """Two WorkloadPriorityClasses, low and urgent."""
    for name, value in {"low": 100, "urgent": 1000}.items():
        cluster.apply(json.dumps(_object("WorkloadPriorityClass", name, value=value)))


@pytest.fixture
def queue(cluster, kueue, operator, namespace):
    """queue(gpus): the namespace's LocalQueue `team` with this quota; `racks` names the rack of each node.

    `more` are its quotas of other resources; it covers none but GPUs without.
    """
    made = []

    def make(gpus, *, racks=None, more=None):
        flavor = {}
        if racks:
            for node, rack in racks.items():
                cluster.kubectl("label", "node", node, f"{RACK}={rack}", "--overwrite")
            levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
            made.append(_object("Topology", namespace, spec={"levels": levels}))
            flavor = {
                "spec": {"nodeLabels": {"rightsizer.test/gpus": "pretended"}, "topologyName": namespace}
            }
        made.append(_object("ResourceFlavor", namespace, **flavor))
        quotas = {"nvidia.com/gpu": gpus, **(more or {})}
        resources = [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()]
        group = {
            "coveredResources": list(quotas),
            "flavors": [{"name": namespace, "resources": resources}],
        }
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": {"withinClusterQueue": "LowerPriority"},
        }
        made.append(_object("ClusterQueue", namespace, spec=spec))
        for each in made:
            cluster.apply(json.dumps(each))
        cluster.apply(json.dumps(_object("LocalQueue", "team", spec={"clusterQueue": namespace})), namespace)

    yield make
    cluster.kubectl("delete", "tp", "--all", "--namespace", namespace)
    cluster.kubectl("delete", "jobs", "--all", "--namespace", namespace, "--wait=false")
    cluster.kubectl("delete", "localqueue", "--all", "--namespace", namespace)
    for each in reversed(made):
        cluster.kubectl("delete", each["kind"], namespace, "--wait=false", "--ignore-not-found")


@pytest.fixture
def other(cluster, namespace):
    """other(name, gpus): a Job of somebody else's in the queue `team`."""

    def make(name, gpus):
        held = {"name": "sleep", "image": "ghcr.io/acme/train:1.4", "command": ["sleep", "3600"]}
        held["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        pod = {"containers": [held], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        labels = {f"{GROUP}/queue-name": "team"}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {"suspend": True, "template": {"spec": pod}},
        }
        cluster.apply(json.dumps(job), namespace)

    return make


@pytest.fixture
def holds(cluster, namespace):
    """holds(name): wait until that Job has its quota, and a pod."""

    def active(name):
        return cluster.api.get("job", name, namespace=namespace)["status"].get("active")

    return lambda name: cluster.wait(f"the pod of {name}", lambda: active(name))


@pytest.fixture
def queued(start):
    """queued(name, priority): a plan in the queue `team`."""

    def make(name="small-gpt", *, priority=None, **spec):
        labels = {f"{GROUP}/queue-name": "team"}
        labels |= {f"{GROUP}/priority-class": priority} if priority else {}
        own = {"checkpoint": {"path": f"/checkpoints/{name}"}, **spec.pop("launch", {})}
        return start(metadata={"name": name, "labels": labels}, launch=own, **spec)

    return make
