import asyncio
import dataclasses

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.lookups import ClusterReader, batches
from rightsizer_operator.values.names import GPU_RESOURCE, LABEL_PLAN
from rightsizer_operator.values.snapshot import AttemptJob

POD = {
    "metadata": {"name": "p", "namespace": "other"},
    "spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU_RESOURCE: "3"}}}]},
}
QUOTA = {"status": {"hard": {f"requests.{GPU_RESOURCE}": "8"}, "used": {f"requests.{GPU_RESOURCE}": "6"}}}
KEY = ("team", "demo")


class KubeClient:
    """Lists pods and quotas, each refused once; there is no Kueue."""

    def __init__(self):
        self.asked = []

    async def every(self, path, *, labelSelector="", **_query):  # noqa: N803 -- the API's word
        if labelSelector == LABEL_PLAN:
            return  # no pod carries our label
        self.asked.append(path.rpartition("/")[2])
        if self.asked.count(self.asked[-1]) == 1:
            raise ApiError(429, "later")
        yield {"pods": POD, "resourcequotas": QUOTA}[self.asked[-1]]

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_plans_that_are_sized_together_share_what_a_busy_api_server_says_at_last():
    kube, cache = KubeClient(), Cache()

    async def ask():
        around = ClusterReader(kube, cache)
        await asyncio.gather(*(around.count_others() for _ in range(4)))
        return await asyncio.gather(*(around.quota(KEY) for _ in range(4)))

    assert asyncio.run(ask()) == [2] * 4
    assert (cache.bound, sorted(kube.asked)) == ({"n1": 3}, ["pods"] * 2 + ["resourcequotas"] * 2)


@pytest.mark.parametrize(
    ("weights", "made"),
    [
        ({}, []),
        ({"a": 1, "b": 1, "c": 1}, [["a", "b"], ["c"]]),
        ({"a": 3, "b": 2, "c": 9, "d": 0}, [["a"], ["b"], ["c"], ["d"]]),
    ],
    ids=["nothing", "by number", "by weight"],
)
def test_what_is_asked_for_together_is_bounded(weights, made):
    assert list(batches(weights, most=4, most_names=2)) == made


def running(keys):
    """A cache that knows these plans, each with one Job that it owns."""
    cache = Cache()
    for namespace, name in keys:
        metadata = {"namespace": namespace, "name": name, "uid": f"plan-{name}", "resourceVersion": "1"}
        cache.saw_plan({"metadata": metadata})
        job = AttemptJob(name=f"{name}-a1", plan=name, namespace=namespace, attempt=1, uid=f"job-{name}")
        cache.reserve((namespace, name), dataclasses.replace(job, owner_uid=f"plan-{name}"))
    return cache


class Pods:
    """Lists the running workers of those plans that a selector names."""

    def __init__(self):
        self.asked = []

    async def every(self, path, *, labelSelector, **_query):  # noqa: N803 -- the API's word
        self.asked.append((path, labelSelector))
        for name in labelSelector.partition("(")[2].partition(")")[0].split(","):
            status = {"phase": "Pending" if name == "new" else "Running", "podIP": f"10.0.0.{len(name)}"}
            for owner in (f"job-{name}", "somebody"):  # the second only says that it is the plan's
                metadata = {"labels": {LABEL_PLAN: name}, "ownerReferences": [{"uid": owner}]}
                yield {"metadata": metadata | {"name": f"{name}-{owner}"}, "status": status}
                status = status | {"podIP": "10.6.6.6"}


def test_where_plans_answer_is_asked_for_many_at_once():
    kube, keys = Pods(), [("team", "demo"), ("team", "new"), ("other", "longer")]
    found = asyncio.run(ClusterReader(kube, running(keys)).addresses(keys))
    assert found == {("team", "demo"): ["10.0.0.4"], ("other", "longer"): ["10.0.0.6"]}
    assert len(kube.asked) == 2


class Labelled:
    """Pods with our label: one of a plan's Job, one of its store, and one that only carries the label."""

    def __init__(self):
        owners = {
            "worker": ("Job", "demo-a1", "job-demo"),
            "store": ("ReplicaSet", "demo-rdzv", "rs-1"),
            "fake": None,
        }
        self.pods = [self._pod(name, owner) for name, owner in owners.items()]

    def _pod(self, name, owner):
        references = [dict(zip(("kind", "name", "uid"), owner, strict=True))] if owner else []
        metadata = {"name": name, "namespace": "team", "labels": {LABEL_PLAN: "demo"}}
        return POD | {"metadata": metadata | {"ownerReferences": references}}

    async def every(self, path, *, labelSelector, **_query):  # noqa: N803 -- the API's word
        for pod in self.pods if labelSelector == LABEL_PLAN and path.endswith("pods") else ():
            yield pod

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_a_pod_that_only_carries_our_label_counts_as_anybody_s():
    cache = running([KEY])
    cache.supports[KEY].add("ReplicaSet/demo-rdzv")
    asyncio.run(ClusterReader(Labelled(), cache).count_others())
    assert cache.bound == {"n1": 3}
