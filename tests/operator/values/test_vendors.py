import pytest

from rightsizer_operator.values.nodes import Node, NodeRequirements, gpu_type, obstacle, pod_gpus
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
    node = Node.of(raw)
    assert (gpu_type(node.product), node.gpus, obstacle(node, NodeRequirements())) == ("MI300X", 8, "")


def test_a_pod_holds_the_gpus_of_either_vendor():
    assert pod_gpus({"containers": [{"resources": {"limits": {AMD.resource: "4"}}}]}) == 4
    assert gpus_in({NVIDIA.resource: "2", "cpu": "8"}) == 2
