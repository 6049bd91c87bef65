import asyncio

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.lookups import ClusterReader, batches
from rightsizer_operator.values.names import GPU_RESOURCE, LABEL_PLAN

POD = {"spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU_RESOURCE: "3"}}}]}}
QUOTA = {"status": {"hard": {f"requests.{GPU_RESOURCE}": "8"}, "used": {f"requests.{GPU_RESOURCE}": "6"}}}
KEY = ("team", "demo")


class KubeClient:
    """Lists pods and quotas, each refused once; there is no Kueue."""

    def __init__(self):
        self.asked = []

    async def every(self, path, **_query):
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


class Pods:
    """Lists the running workers of those plans that a selector names."""

    def __init__(self):
        self.asked = []

    async def every(self, path, *, labelSelector, **_query):  # noqa: N803 -- the API's word
        self.asked.append((path, labelSelector))
        for name in labelSelector.partition("(")[2].partition(")")[0].split(","):
            status = {"phase": "Pending" if name == "new" else "Running", "podIP": f"10.0.0.{len(name)}"}
            yield {"metadata": {"name": f"{name}-a1-0-x", "labels": {LABEL_PLAN: name}}, "status": status}


def test_where_plans_answer_is_asked_for_many_at_once():
    kube, keys = Pods(), [("team", "demo"), ("team", "new"), ("other", "longer")]
    found = asyncio.run(ClusterReader(kube, Cache()).addresses(keys))
    assert found == {("team", "demo"): ["10.0.0.4"], ("other", "longer"): ["10.0.0.6"]}
    assert len(kube.asked) == 2
