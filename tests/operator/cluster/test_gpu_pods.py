import asyncio

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.gpu_pods import read_gpu_pods
from rightsizer_operator.cluster.lookups import ClusterReader
from rightsizer_operator.values.nodes import NodeRequirements
from rightsizer_operator.values.requests import Allowance

GPUS = "nvidia.com/gpu"


def pod(node, *, gpus=0, cpu="1"):
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {GPUS: gpus} if gpus else {}}
    spec = {"containers": [{"resources": resources}], **({"nodeName": node} if node else {})}
    return {"metadata": {"namespace": "team", "name": "p"}, "spec": spec}


class Kube:
    """Lists these pods and the given namespaced kinds; refuses all others."""

    def __init__(self, *pods, **namespaced):
        self.found = {"pods": pods, **namespaced}

    async def every(self, path, **_query):
        kind = path.rpartition("/")[2]
        if kind not in self.found:
            raise ApiError(403, "forbidden")
        for each in self.found[kind]:
            yield each

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_requests_are_summed_for_pods_without_gpus_and_kept_for_pods_with_some():
    pods = (pod("n1"), pod("n1", cpu="500m"), pod("cpu"), pod("n1", gpus=2, cpu="8"), pod("", gpus=4))
    found = asyncio.run(read_gpu_pods(Kube(*pods), None, {"n1"}))
    assert {name: amounts["cpu"] for name, amounts in found.loads.others.items()} == {"n1": 1.5}
    assert found.loads.holders == {"n1": ((2, {"cpu": 8.0, "memory": 2.0**30}),)}
    assert ([each.gpus for each in found.bound], len(found.waiting)) == ([2], 1)


def test_a_plan_s_share_follows_the_pods_and_the_nodes():
    def node(cores):
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {GPUS: "8", "cpu": cores}, "conditions": ready}
        return {"metadata": {"name": "n1", "labels": labels}, "status": status}

    cache = Cache()
    cache.set_node(node("8"))
    share = lambda: cache.inventory(without=("team", "demo")).share(NodeRequirements(), 4).get("cpu")
    assert share() is None
    asyncio.run(ClusterReader(Kube(pod("n1", cpu="2")), cache).refresh_pods())
    assert share() == 3.0
    cache.set_node(node("10"))
    assert share() == 4.0


@pytest.mark.parametrize(
    ("state", "generation", "read"),
    [("Complete", 1, False), ("Failed", 1, False), ("Failed", 2, True), ("WaitingForGPUs", 1, True)],
    ids=["complete", "failed", "changed", "waits"],
)
def test_what_a_namespace_leaves_is_read_for_plans_that_may_be_launched(state, generation, read):
    kube, cache, key = Kube(resourcequotas=(), limitranges=()), Cache(), ("team", "demo")
    metadata = {"namespace": "team", "name": "demo", "uid": "u", "resourceVersion": "1"}
    ready = {"type": "Ready", "status": "False", "reason": state}
    status = {"observedGeneration": 1, "conditions": [ready]}
    cache.set_plan({"metadata": metadata | {"generation": generation}, "status": status})
    assert asyncio.run(ClusterReader(kube, cache).allowance(key)) == (Allowance() if read else None)


def test_a_namespace_that_may_not_be_read_allows_nothing_that_is_known():
    key, quota = ("team", "demo"), {"status": {"hard": {"cpu": "4050m"}}}
    reader = lambda **found: ClusterReader(Kube(**found), Cache()).allowance(key)
    assert asyncio.run(reader(resourcequotas=())) is None
    assert asyncio.run(reader(limitranges=())) is None
    assert asyncio.run(reader(resourcequotas=(quota,), limitranges=())) == Allowance(left={"cpu": 4.0})
