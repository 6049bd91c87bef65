"""The requests of a plan's Job on AMD's GPUs."""

import pytest

from rightsizer_operator.cluster.cache import quota_left
from rightsizer_operator.values.actions import Apply
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.vendors import AMD, NVIDIA

PRODUCTS = {AMD: "AMD_Instinct_MI300X_OAM", NVIDIA: "NVIDIA-H100-80GB-HBM3"}


@pytest.mark.parametrize(("vendor", "rocm"), [(AMD, True), (NVIDIA, False)], ids=["amd", "nvidia"])
def test_workers_request_the_vendor_s_gpus_on_its_nodes(fake_cluster, vendor, rocm):
    cluster = fake_cluster()
    cluster.inventory = Inventory(nodes=(ClusterNode(name="n1", product=PRODUCTS[vendor], gpus=8),))
    (job,) = (a.child for a in cluster.decide() if isinstance(a, Apply) and a.child["kind"] == "Job")
    spec = job["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == {vendor.resource: 1}
    assert terms["nodeSelectorTerms"][0]["matchExpressions"][-1] == {
        "key": vendor.product_label, "operator": "In", "values": [PRODUCTS[vendor]],
    }  # fmt: skip
    assert {"key": vendor.resource, "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert ("HSA_NO_SCRATCH_RECLAIM" in {variable["name"] for variable in container["env"]}) is rocm


@pytest.mark.parametrize(("vendors", "left"), [((AMD,), 3), ((NVIDIA,), None), ((NVIDIA, AMD), 3)])
def test_a_quota_of_one_vendor_limits_only_plans_on_its_gpus(vendors, left):
    name = f"requests.{AMD.resource}"
    quota = {"status": {"hard": {name: "8"}, "used": {name: "6"}}}
    assert quota_left([quota], own=1, names=[f"requests.{each.resource}" for each in vendors]) == left
