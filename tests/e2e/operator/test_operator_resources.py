"""The workers' share of a node besides GPUs: CPU and memory by their share, and a /dev/shm of memory."""

import pytest
from planrun import IDLE

pytestmark = pytest.mark.kubernetes

SHM = "/dev/shm"  # noqa: S108 -- a pod's own
NODE = "kubernetes.io/hostname"
LIMITS = """
apiVersion: v1
kind: LimitRange
metadata: {name: defaults}
spec:
  limits: [{type: Container, default: {memory: 300Mi}, defaultRequest: {memory: 200Mi}}]
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: quota}
spec: {hard: {requests.cpu: 150m, requests.memory: 2Gi}}
"""


def half_of(node):
    """The spec of a plan for one pod of half of a node's GPUs."""
    size = {"gpus": 4, "minGPUs": 4, "maxGPUs": 4, "gpusPerNode": 8}
    template = {"podTemplate": {"spec": {"nodeSelector": {NODE: node}}}}
    return {"resources": size, "layout": {"microBatch": 1}, "launch": IDLE | template}


def test_plans_on_all_gpus_of_a_node_are_burstable_and_have_a_dev_shm_of_memory(plan, cluster):
    node = min(cluster.ready_nodes())
    runs = [plan(metadata={"name": name}, **half_of(node)).start() for name in ("a", "b")]
    for run in runs:
        run.until("Running")
        (pod,) = run.pods()
        assert pod["status"]["qosClass"] == "Burstable"
        assert list(pod["spec"]["containers"][0]["resources"]["limits"]) == ["nvidia.com/gpu"]
    columns = "--output=fstype,size"
    shown = runs[0].kubectl("exec", runs[0].pods()[0]["metadata"]["name"], "--", "df", columns, SHM)
    kind, size_kib = shown.splitlines()[1].split()
    assert (kind, int(size_kib) > 2**20) == ("tmpfs", True), shown


def test_a_namespace_s_limits_and_quotas_refuse_no_worker(start, cluster, namespace):
    cluster.apply(LIMITS, namespace)
    run = start(**half_of(min(cluster.ready_nodes())))
    run.until("Running")
    (pod,) = run.pods()
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources["requests"]["memory"] == "200Mi"
    assert resources["requests"]["cpu"] == "50m"  # half of what the quota leaves beside the rendezvous pod
    assert pod["status"]["qosClass"] == "Burstable"


def test_a_template_s_own_requests_and_dev_shm_are_kept(start, cluster):
    spec = half_of(min(cluster.ready_nodes()))
    trainer = {
        "name": "trainer",
        "resources": {"limits": {"cpu": "1", "memory": "256Mi"}},
        "volumeMounts": [{"name": "own", "mountPath": SHM}],
    }
    own = {"name": "own", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}}
    spec["launch"]["podTemplate"]["spec"] |= {"containers": [trainer], "volumes": [own]}
    run = start(**spec)
    run.until("Running")
    (pod,) = run.pods()
    asked = pod["spec"]["containers"][0]["resources"]["requests"]
    assert {name: asked[name] for name in ("cpu", "memory")} == {"cpu": "1", "memory": "256Mi"}
    assert [volume["name"] for volume in pod["spec"]["volumes"] if "shm" in volume["name"]] == []
