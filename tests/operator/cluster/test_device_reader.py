import asyncio

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.device_reader import read_devices
from rightsizer_operator.cluster.lookups import ClusterReader
from rightsizer_operator.values.nodes import ClusterNode

CLASS = "gpu.nvidia.com"
KEY = ("team", "demo")


def allocated(uid, *devices):
    results = [{"driver": CLASS, "pool": "n1", "device": device} for device in devices]
    metadata = {"name": "c", "ownerReferences": [{"kind": "Pod", "uid": uid}]}
    return {"metadata": metadata, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}}


class FakeKubeClient:
    """One node's slice, and a pod's claim of two of its devices."""

    def __init__(self, versions=("v1beta1", "v1beta2", "v1"), expression=f"device.driver == '{CLASS}'"):
        self.versions, self.expression, self.asked = versions, expression, []

    async def call(self, _method, path):
        self.asked.append(path)
        if path == "/apis/resource.k8s.io" and self.versions:
            return {"versions": [{"version": version} for version in self.versions]}
        if path.endswith(f"/deviceclasses/{CLASS}") and self.expression:
            selectors = [{"cel": {"expression": self.expression}}]
            return {"metadata": {"name": CLASS}, "spec": {"selectors": selectors}}
        raise ApiError(404, "not found")

    async def every(self, path, **_query):
        self.asked.append(path)
        product = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
        devices = [{"name": f"gpu-{index}", "attributes": product} for index in range(8)]
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": CLASS, "nodeName": "n1", "pool": pool, "devices": devices}
        pod = {"metadata": {"name": "p", "namespace": "other", "uid": "u"}, "spec": {"nodeName": "n1"}}
        kinds = {
            "resourceslices": {"metadata": {"name": "s"}, "spec": spec},
            "resourceclaims": allocated("u", "gpu-0", "gpu-1"),
            "pods": pod,
        }
        yield kinds[path.rpartition("/")[2]]


@pytest.mark.parametrize(("served", "used"), [(("v1beta2", "v1"), "v1"), (("v1beta1", "v1beta2"), "v1beta2")])
def test_the_newest_served_version_is_read(served, used):
    kube = FakeKubeClient(served)
    read = asyncio.run(read_devices(kube, CLASS))
    assert (read.api, read.pods) == (f"resource.k8s.io/{used}", {"u": 2})
    assert kube.asked[-1] == f"/apis/resource.k8s.io/{used}/resourceclaims"


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ({"versions": ()}, "does not serve resource.k8s.io/v1 or v1beta2"),
        ({"versions": ("v1beta1",)}, "does not serve"),
        ({"expression": ""}, "DeviceClass gpu.nvidia.com is missing"),
        ({"expression": "true"}, "has a selector other than equalities"),
    ],
    ids=["no-api", "too-old", "no-class", "unreadable"],
)
def test_what_the_cluster_lacks_is_a_warning_and_no_gpus(lacking, said, caplog):
    read = asyncio.run(read_devices(FakeKubeClient(**lacking), CLASS))
    assert read.nodes == {}
    assert said in caplog.text


def test_a_refusal_is_an_error_and_not_a_cluster_without_gpus():
    class Refusing(FakeKubeClient):
        async def call(self, _method, _path):
            raise ApiError(403, "forbidden")

    with pytest.raises(ApiError):
        asyncio.run(read_devices(Refusing(), CLASS))


def test_the_cache_counts_devices_and_what_pods_hold_of_them():
    cache = Cache()
    cache.set_node({"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}})
    reader = ClusterReader(FakeKubeClient(), cache, device_class=CLASS)
    asyncio.run(reader.refresh_pods())
    inventory = cache.inventory(without=KEY)
    assert [(node.product, node.gpus) for node in inventory.nodes] == [("NVIDIA H100 80GB HBM3", 8)]
    assert inventory.held == {"n1": 2}
    assert inventory.devices is not None
    cache.set_node({"metadata": {"name": "n2"}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}})
    assert ClusterNode(name="n2", ready=False) in cache.inventory(without=KEY).nodes
