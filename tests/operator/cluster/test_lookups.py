import asyncio
import dataclasses

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.lookups import ClusterReader, batches
from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.names import LABEL_PLAN
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import NVIDIA

POD = {
    "metadata": {"name": "p", "namespace": "other"},
    "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {NVIDIA.resource: "3"}}}]},
}
QUOTA = {
    "status": {"hard": {f"requests.{NVIDIA.resource}": "8"}, "used": {f"requests.{NVIDIA.resource}": "6"}}
}
KEY = ("team", "demo")


class FakeKubeClient:
    """Lists pods and quotas, each after one 429; there is no Kueue."""

    def __init__(self):
        self.lists = []

    async def every(self, path, *, labelSelector="", **_query):  # the API's word
        self.lists.append(path.rpartition("/")[2])
        if self.lists.count(self.lists[-1]) == 1:
            raise ApiError(429, "later")
        yield {"pods": POD, "resourcequotas": QUOTA}[self.lists[-1]]

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_concurrent_reconciles_share_one_list_that_is_retried_while_the_api_server_is_busy():
    kube, cache = FakeKubeClient(), Cache()

    async def ask():
        reader = ClusterReader(kube, cache)
        await asyncio.gather(*(reader.refresh_pods() for _ in range(4)))
        return await asyncio.gather(*(reader.quota(KEY) for _ in range(4)))

    assert asyncio.run(ask()) == [2] * 4
    assert cache.inventory(without=KEY).held == {"n1": 3}
    assert sorted(kube.lists) == ["pods"] * 2 + ["resourcequotas"] * 2


SLICES = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("kind", "left"), [("H100", 1), ("H100-SXM5-80GB-MIG-1g.10gb", 4), ("H100-SXM5-80GB-MIG-2g.20gb", 1)]
)
def test_a_quota_of_slices_limits_plans_for_them(kind, left):
    class Quotas(FakeKubeClient):
        async def every(self, path, **_query):
            hard = {f"requests.{SLICES}": "4", f"requests.{NVIDIA.resource}": "1"}
            yield {"status": {"hard": hard, "used": {}}}

    cache = Cache()
    metadata = {"namespace": "team", "name": "demo", "uid": "u", "resourceVersion": "1"}
    cache.set_plan({"metadata": metadata, "spec": {"resources": {"gpuTypes": [kind]}}})
    product = {f"{SLICES}.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"}
    cache.set_node({"metadata": {"name": "n1", "labels": product}, "status": {"allocatable": {SLICES: "7"}}})
    assert asyncio.run(ClusterReader(Quotas(), cache).quota(KEY)) == left


@pytest.mark.parametrize(
    ("weights", "made"),
    [
        ({}, []),
        ({"a": 1, "b": 1, "c": 1}, [["a", "b"], ["c"]]),
        ({"a": 3, "b": 2, "c": 9, "d": 0}, [["a"], ["b"], ["c"], ["d"]]),
    ],
    ids=["nothing", "by number", "by weight"],
)
def test_batches_are_limited_by_number_and_weight(weights, made):
    assert list(batches(weights, max_weight=4, max_names=2)) == made


def running(keys):
    """A cache of these plans, each with one Job that it owns."""
    cache = Cache()
    for namespace, name in keys:
        metadata = {"namespace": namespace, "name": name, "uid": f"plan-{name}", "resourceVersion": "1"}
        cache.set_plan({"metadata": metadata})
        job = AttemptJob(name=f"{name}-a1", plan=name, namespace=namespace, attempt=1, uid=f"job-{name}")
        cache.reserve((namespace, name), dataclasses.replace(job, owner_uid=f"plan-{name}"))
    return cache


class Pods:
    """Lists the workers of the plans in the selector."""

    def __init__(self):
        self.lists = []

    async def every(self, path, *, labelSelector, **_query):  # the API's word
        self.lists.append((path, labelSelector))
        for name in labelSelector.partition("(")[2].partition(")")[0].split(","):
            status = {"phase": "Pending" if name == "new" else "Running", "podIP": f"10.0.0.{len(name)}"}
            for owner in (f"job-{name}", "somebody"):  # the second has the plan label only
                metadata = {"labels": {LABEL_PLAN: name}, "ownerReferences": [{"uid": owner}]}
                yield {"metadata": metadata | {"name": f"{name}-{owner}"}, "status": status}
                status = status | {"podIP": "10.6.6.6"}


def test_pod_addresses_are_listed_for_many_plans_at_once():
    kube, keys = Pods(), [("team", "demo"), ("team", "new"), ("other", "longer")]
    addresses = asyncio.run(ClusterReader(kube, running(keys)).addresses(keys))
    assert addresses == {("team", "demo"): ["10.0.0.4"], ("other", "longer"): ["10.0.0.6"]}
    assert len(kube.lists) == 2


class Labelled:
    """Pods with the plan label: one of the plan's Job, on a node, and others that no plan owns."""

    def __init__(self):
        self.pods = [
            self._pod("worker", "job-demo"),
            self._pod("fake"),
            self._pod("stray", "job-demo", "elsewhere"),
        ]

    def _pod(self, name, owner=None, namespace="team"):
        references = [{"kind": "Job", "name": "demo-a1", "uid": owner, "controller": True}] if owner else []
        metadata = {"name": name, "namespace": namespace, "labels": {LABEL_PLAN: "demo"}}
        return POD | {"metadata": metadata | {"ownerReferences": references}}

    async def every(self, path, **_query):
        for pod in self.pods if path.endswith("pods") else ():
            yield pod

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_labelled_pods_that_no_plan_owns_count_as_another_workload_s():
    cache = running([KEY])
    asyncio.run(ClusterReader(Labelled(), cache).refresh_pods())
    assert cache.inventory(without=KEY).held == {"n1": 6}
    assert cache.inventory(without=("team", "other")).held == {"n1": 9}


@pytest.mark.parametrize(
    ("owner", "wanted"), [("job-demo", set()), (None, {"H100-SXM5-80GB"})], ids=["own", "foreign"]
)
def test_pressure_comes_from_pods_that_no_plan_owns(owner, wanted):
    kube, cache = Labelled(), running([KEY])
    (job,) = cache.owned(KEY)
    cache.reserve(KEY, dataclasses.replace(job, name="demo-a2", uid=""))  # not created yet
    cache._store_node(ClusterNode(name="n1", product="NVIDIA-H100-80GB-HBM3", gpus=8))
    spec = {"containers": POD["spec"]["containers"]}
    kube.pods = [kube._pod("waits", owner) | {"spec": spec}]
    asyncio.run(ClusterReader(kube, cache).refresh_pods())
    assert cache.wanted == wanted


class FakeKueue:
    """A cluster with Kueue and these Workloads; it remembers the label selectors."""

    def __init__(self, *workloads):
        self.found, self.selectors = workloads, []

    async def every(self, _path, *, labelSelector=""):  # the API's word
        self.selectors.append(labelSelector)
        for raw in self.found:
            yield raw

    async def call(self, _method, _path):
        return {"preferredVersion": {"version": "v1beta2"}}


def owned_workload(kind, name):
    return {"metadata": {"name": f"{kind}-{name}", "ownerReferences": [{"kind": kind, "name": name}]}}


@pytest.mark.parametrize(
    ("kind", "selector"), [("Job", "kueue.x-k8s.io/job-uid in (j1)"), ("TrainJob", "")], ids=["uid", "name"]
)
def test_the_workload_of_a_carrier_is_found_by_its_owner(kind, selector):
    job = AttemptJob(
        name="demo-a1", plan="demo", namespace="team", attempt=1, uid="j1", kind=kind, suspended=True
    )
    plan = {"metadata": {"namespace": "team"}, "spec": {}}
    kube = FakeKueue(owned_workload(kind, "demo-a1"), owned_workload(kind, "other-a1"))
    found = asyncio.run(ClusterReader(kube, Cache()).workloads(plan, (job,)))
    assert [workload.name for workload in found] == [f"{kind}-demo-a1"]
    assert kube.selectors == [selector]


class InstalledKueue(FakeKubeClient):
    """Kueue is installed while the operator runs."""

    def __init__(self):
        super().__init__()
        self.there = False

    async def call(self, _method, path):
        if not self.there:
            raise ApiError(404, "no Kueue")
        if path.endswith("/kueue.x-k8s.io"):
            return {"preferredVersion": {"version": "v1beta2"}}
        raise ApiError(404, "no such queue")


def test_kueue_that_was_just_installed_is_known_before_it_suspends_a_job(monkeypatch):
    now = 0.0
    monkeypatch.setattr("rightsizer_operator.cluster.lookups.time.monotonic", lambda: now)
    kube = InstalledKueue()
    reader = ClusterReader(kube, Cache())
    plan = {"metadata": {"namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "fast"}}}
    assert asyncio.run(reader.queue(plan)) is None
    kube.there, now = True, 3.0
    assert asyncio.run(reader.queue(plan)) == Queue(name="fast")
