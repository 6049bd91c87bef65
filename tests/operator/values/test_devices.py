"""Devices of a class: which are counted where, which pods hold them, and how a claim names their product."""

import pytest

from rightsizer_operator.values.devices import DeviceClass, Devices, quota_name, selector
from rightsizer_operator.values.nodes import ClusterNode, pod_gpus

DRIVER, H100, A100 = "gpu.nvidia.com", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
WHOLE = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
POD = {"kind": "Pod", "name": "p", "uid": "pod-1"}


def class_of(*expressions, name=DRIVER):
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return DeviceClass.of({"metadata": {"name": name}, "spec": {"selectors": selectors}})


def device(name, product=H100, **fields):
    texts = {"type": "mig" if "profile" in fields else "gpu", "productName": product}
    texts |= {"profile": fields.pop("profile")} if "profile" in fields else {}
    return {"name": name, "attributes": {key: {"string": text} for key, text in texts.items()}, **fields}


def listed(node, *devices, pool=None, **place):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1} | (pool or {})
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **place}
    return {"metadata": {"name": f"{node}-1"}, "spec": spec}


def gpus(node, count=8, **kind):
    return listed(node, *(device(f"gpu-{index}", **kind) for index in range(count)))


def claim(*held, asked=0, owners=(POD,), **status):
    if held:
        results = [{"driver": DRIVER, "pool": pool, "device": name} for pool, name in held]
        status["allocation"] = {"devices": {"results": results}}
    requests = [{"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": asked}}]
    spec = {"devices": {"requests": requests if asked else []}}
    return {"metadata": {"name": "c", "ownerReferences": list(owners)}, "spec": spec, "status": status}


def read(*slices, claims=(), stated=None):
    return Devices.of(stated or class_of(WHOLE), slices, claims, api="resource.k8s.io/v1")


@pytest.mark.parametrize(
    ("expressions", "selected"),
    [
        ((WHOLE,), True),
        ((WHOLE.replace("'", '"'),), True),
        (tuple(WHOLE.split(" && ")), True),
        ((), True),
        ((f"device.attributes['{DRIVER}'].type == 'mig'",), False),
        (("device.driver == 'gpu.amd.com'",), False),
        ((f"device.attributes['{DRIVER}'].type != 'mig'",), False),
        ((f"{WHOLE} || true",), False),
    ],
    ids=["conjunction", "quotes", "several", "none", "attribute", "driver", "unreadable", "disjunction"],
)
def test_a_class_selects_by_its_driver_and_attributes(expressions, selected):
    nodes = read(gpus("n1"), stated=class_of(*expressions)).nodes
    assert nodes == ({"n1": (H100, 8)} if selected else {})


TAINT = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}
OLD = {"generation": 0}
MISSING = {"resourceSliceCount": 2}


@pytest.mark.parametrize(
    ("slices", "nodes"),
    [
        ([gpus("n1"), gpus("n2", 4, product=A100)], {"n1": (H100, 8), "n2": (A100, 4)}),
        ([listed("n1", device("a", **TAINT), device("b"))], {"n1": (H100, 1)}),
        ([gpus("n1", 2), listed("n1", device("old"), pool=OLD)], {"n1": (H100, 2)}),
        ([listed("n1", device("a"), pool=MISSING)], {}),
        ([listed("", device("a"), allNodes=True)], {}),
        ([listed("n1", {"name": "a", "basic": device("a")})], {"n1": (H100, 1)}),
        ([listed("n1", device("a"), device("b"), device("c", A100))], {"n1": (H100, 2)}),
    ],
    ids=["types", "tainted", "older-generation", "incomplete", "on-no-node", "v1beta1", "two-products"],
)
def test_the_devices_of_a_node_are_counted(slices, nodes):
    assert read(*slices).nodes == nodes


def test_slices_of_mig_are_named_as_their_labels_would_name_them():
    sliced = class_of(f"device.attributes['{DRIVER}'].type == 'mig'", name="mig.nvidia.com")
    nodes = read(gpus("n1", 7, profile="1g.10gb"), gpus("n2"), stated=sliced).nodes
    assert nodes == {"n1": (f"{H100}-MIG-1g.10gb", 7)}


def test_a_node_has_the_devices_instead_of_a_plugin_s_resource():
    devices = read(gpus("n1", 2))
    assert devices.on(ClusterNode(name="n1", gpus=8)) == ClusterNode(name="n1", product=H100, gpus=2)
    assert devices.on(ClusterNode(name="n2", gpus=8, product="x")) == ClusterNode(name="n2")


SHARED = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-1"}]}
ADMIN = {
    "allocation": {
        "devices": {"results": [{"driver": DRIVER, "pool": "n1", "device": "gpu-0", "adminAccess": True}]}
    }
}


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (claim(("n1", "gpu-0"), ("n1", "gpu-1")), 2),
        (claim(("n1", "gpu-0"), owners=(), **SHARED), 1),
        (claim(asked=4), 4),
        (claim(("n9", "nic-0"), asked=1), 0),
        (claim(asked=1, owners=()), 0),
        (claim(**ADMIN), 0),
    ],
    ids=["held", "shared", "waiting", "other-devices", "unused", "admin"],
)
def test_a_pod_holds_what_its_claims_hold_or_ask_for(made, held):
    pod = {"metadata": {"uid": "pod-1"}, "spec": {"containers": [{}]}}
    assert pod_gpus(read(gpus("n1"), claims=[made]).held_by(pod)["spec"]) == held


def test_a_selector_names_products_and_profiles_as_text():
    own = "device.attributes[device.driver]"
    assert selector([H100, f"{A100}-MIG-1g.10gb"]) == (
        f'"productName" in {own} && ('
        f'({own}.productName == "{H100}" && !("profile" in {own})) || '
        f'({own}.productName == "{A100}" && "profile" in {own} && {own}.profile == "1g.10gb"))'
    )
    assert r'== "a\" || true || \""' in selector(['a" || true || "'])


def test_a_quota_is_named_by_the_class():
    assert quota_name(DRIVER) == "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
