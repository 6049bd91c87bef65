"""Pods that claim their GPUs of a DeviceClass."""

import pytest

from rightsizer_operator.cluster.cache import quota_left
from rightsizer_operator.values.actions import Apply
from rightsizer_operator.values.devices import Devices, quota_name
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.snapshot import AttemptJob

CLASS, H100 = "gpu.nvidia.com", "NVIDIA H100 80GB HBM3"
DEVICES = Devices(device_class=CLASS, api="resource.k8s.io/v1beta2")


@pytest.fixture
def claiming(fake_cluster):
    """claiming(...): a cluster whose pods claim GPUs."""

    def make(change=None):
        nodes = tuple(ClusterNode(name=f"n{index}", product=H100, gpus=8) for index in range(2))
        return fake_cluster(change, inventory=Inventory(nodes=nodes, devices=DEVICES))

    return make


def applied(cluster, kind):
    return [a.child for a in cluster.decide() if isinstance(a, Apply) and a.child["kind"] == kind]


def test_each_pod_claims_its_devices_of_a_template_that_the_plan_owns(claiming):
    cluster = claiming({"resources": {"gpus": 8, "maxGPUs": 8, "gpusPerNode": 4}})
    (template,), (job,) = applied(cluster, "ResourceClaimTemplate"), applied(cluster, "Job")
    assert template["apiVersion"] == DEVICES.api
    assert [owner["uid"] for owner in template["metadata"]["ownerReferences"]] == ["uid-1"]
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    selectors = request["exactly"].pop("selectors")
    assert request["exactly"] == {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 4}
    assert f'productName == "{H100}"' in selectors[0]["cel"]["expression"]
    spec = job["spec"]["template"]["spec"]
    assert spec["resourceClaims"] == [
        {"name": "rightsizer-gpus", "resourceClaimTemplateName": template["metadata"]["name"]}
    ]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "rightsizer-gpus"}]}
    assert "affinity" not in spec


def test_claims_of_the_template_come_beside_the_gpus(claiming):
    claims = {"resources": {"claims": [{"name": "nic"}]}}
    spec = {"resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}]}
    spec["containers"] = [{"name": "trainer", **claims}]
    (job,) = applied(claiming({"launch": {"podTemplate": {"spec": spec}}}), "Job")
    pod = job["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["resourceClaims"]] == ["rightsizer-gpus", "nic"]
    assert [each["name"] for each in pod["containers"][0]["resources"]["claims"]] == [
        "rightsizer-gpus",
        "nic",
    ]


def test_a_job_records_the_number_and_type_of_claimed_gpus(claiming):
    (job,) = applied(claiming({"resources": {"gpus": 8, "maxGPUs": 8, "gpusPerNode": 4}}), "Job")
    read = AttemptJob.of(job)
    assert (read.gpus, read.gpus_per_pod, read.pod_gpus) == (8, 4, 4)
    assert read.nodes.types == ("H100-SXM5-80GB",)


def test_the_template_is_made_once_and_the_plan_settles(claiming):
    cluster = claiming().settle()
    assert "ResourceClaimTemplate/demo-a1" in cluster.children
    assert not applied(cluster, "ResourceClaimTemplate")


def test_a_quota_of_the_class_limits_plans_that_claim():
    quota = {
        "status": {
            "hard": {quota_name(CLASS): "8", "requests.nvidia.com/gpu": "0"},
            "used": {quota_name(CLASS): "6"},
        }
    }
    assert quota_left([quota], own=1, names=[quota_name(CLASS)]) == 3
