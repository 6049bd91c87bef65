import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.occupancy import bound_pods
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, gpu_type, obstacle, pod_gpus
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import AMD, NVIDIA, VENDORS, gpus_in, vendor_of, vendors_of


@pytest.mark.parametrize(
    ("kind", "vendor"), [("H100-SXM5-80GB", NVIDIA), ("MI300X", AMD), ("MI250X-GCD", AMD), ("L4", NVIDIA)]
)
def test_the_vendor_follows_from_the_gpu_type(kind, vendor):
    assert vendor_of(kind) is vendor


@pytest.mark.parametrize(
    ("named", "vendors"),
    [
        (["MI300X"], (AMD,)),
        (["H100", "MI300X"], (NVIDIA, AMD)),
        ([], VENDORS),
        (["a-gpu-nobody-knows"], VENDORS),
    ],
)
def test_the_vendors_of_a_plan_are_those_of_its_types(named, vendors):
    assert vendors_of(named) == vendors


def test_a_node_of_amd_gpus_is_read_by_its_labeller_and_its_device_plugin():
    raw = {
        "metadata": {"name": "n1", "labels": {AMD.product_label: "AMD_Instinct_MI300X_OAM"}},
        "status": {
            "allocatable": {AMD.resource: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    node = ClusterNode.of(raw)
    assert (gpu_type(node.product), node.gpus, obstacle(node, NodeRequirements())) == ("MI300X", 8, "")


def test_a_pod_holds_the_gpus_of_either_vendor():
    assert pod_gpus({"containers": [{"resources": {"limits": {AMD.resource: "4"}}}]}) == 4
    assert gpus_in({NVIDIA.resource: "2", "cpu": "8"}) == 2


PROFILE = "nvidia.com/mig-1g.10gb"
SLICED = {
    "metadata": {
        "name": "n1",
        "labels": {
            NVIDIA.product_label: "NVIDIA-H100-80GB-HBM3",
            f"{PROFILE}.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
        },
    },
    "status": {
        "allocatable": {NVIDIA.resource: "4", PROFILE: "28", "nvidia.com/mig-2g.20gb": "0"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_a_node_of_the_mig_strategy_mixed_has_whole_gpus_and_slices_by_profile():
    nodes = [(node.place, gpu_type(node.product), node.gpus) for node in ClusterNode.all_of(SLICED)]
    sliced = ("n1/nvidia.com/mig-1g.10gb", "H100-SXM5-80GB-MIG-1g.10gb", 28)
    assert nodes == [("n1", "H100-SXM5-80GB", 4), sliced]


def test_slices_that_pods_hold_leave_whole_gpus_free():
    limits = {"limits": {PROFILE: "3", NVIDIA.resource: "1"}}
    pod = {"metadata": {"namespace": "a"}, "spec": {"nodeName": "n1", "containers": [{"resources": limits}]}}
    assert {each.node: each.gpus for each in bound_pods([pod])} == {"n1": 1, f"n1/{PROFILE}": 3}


def test_a_node_that_is_divided_anew_loses_its_old_profile():
    cache = Cache()
    cache.set_node(SLICED)
    assert cache.set_node(SLICED | {"status": {"allocatable": {NVIDIA.resource: "4"}}})
    assert list(cache.nodes) == ["n1"]
    cache.set_node(SLICED)
    cache.remove_node("n1")
    assert not cache.nodes


def test_workers_on_a_slice_request_its_profile_on_nodes_that_have_it(fake_cluster):
    sliced = fake_cluster(
        {"resources": {"gpuTypes": ["H100-SXM5-80GB-MIG-1g.10gb"], "gpus": None, "minGPUs": None}}
    )
    sliced.inventory = Inventory(nodes=ClusterNode.all_of(SLICED))
    job = sliced.settle().job()
    spec = job["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms[0]["matchExpressions"][-1]["key"] == f"{PROFILE}.product"
    assert spec["containers"][0]["resources"] == {"limits": {PROFILE: 1}}
    assert AttemptJob.of(job).gpus_per_pod == 1


def test_the_trainer_s_slices_are_not_the_template_s_to_set(fake_cluster):
    container = {"name": "trainer", "resources": {"limits": {PROFILE: 2}}}
    refused = fake_cluster({"launch": {"podTemplate": {"spec": {"containers": [container]}}}}).settle()
    assert refused.state == "Invalid"
