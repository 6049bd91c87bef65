"""GPUs by claims of a DeviceClass, as far as the scheduler: no driver is here, so no worker starts."""

import json

import pytest
from planrun import IDLE, Run

pytestmark = pytest.mark.kubernetes

API = "/apis/resource.k8s.io/v1"
CLASS = "gpu.nvidia.com"
TYPE = f"device.driver == '{CLASS}' && device.attributes['{CLASS}'].type == 'gpu'"
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def slice_of(node, product, count=8):
    """The ResourceSlice that NVIDIA's driver publishes of a node."""
    attributes = {"type": {"string": "gpu"}, "productName": {"string": product}}
    devices = [{"name": f"gpu-{index}", "attributes": attributes} for index in range(count)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-gpus"}, "spec": spec}


def whole_pods(gpus, name="small-gpt"):
    """A plan of one pod with so many H100."""
    size = {"gpus": gpus, "minGPUs": gpus, "maxGPUs": gpus, "gpusPerNode": 8}
    size |= {"gpuTypes": ["H100-SXM5-80GB"]}
    return {"metadata": {"name": name}, "resources": size, "layout": {"microBatch": 1}, "launch": IDLE}


def holders(cluster):
    """Pods that hold a node's GPUs without a claim; those of a deleted plan save first, and end later."""
    pods = cluster.api.get("pods", namespace=None)["items"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"]["phase"] in {"Pending", "Running"}
        for container in pod["spec"]["containers"]
        if "nvidia.com/gpu" in container.get("resources", {}).get("limits", {})
    ]


@pytest.fixture(scope="module")
def nodes(cluster, api, installed):
    """The names of three nodes: two with eight H100, the last with eight A100, as their slices say."""
    installed.stay_outside()
    cluster.wait("no pod of an earlier test holds GPUs", lambda: not holders(cluster), within_s=120)
    names = sorted(cluster.ready_nodes())
    api(
        "POST",
        f"{API}/deviceclasses",
        {"metadata": {"name": CLASS}, "spec": {"selectors": [{"cel": {"expression": TYPE}}]}},
    )
    for name, product in zip(names, (H100, H100, A100), strict=True):
        api("POST", f"{API}/resourceslices", slice_of(name, product))
    yield names
    for name in names:
        api("DELETE", f"{API}/resourceslices/{name}-gpus")
    api("DELETE", f"{API}/deviceclasses/{CLASS}")


@pytest.fixture(scope="module")
def operator(nodes, operators):
    """An operator outside the cluster with the chart's rights, whose pods claim GPUs."""
    operators.delete_lease()
    yield operators.operator(device_class=CLASS).start()
    operators.end_all()


@pytest.fixture
def start(cluster, api, operator, namespace):
    """start(...): a plan; its pods are removed when the test ends, although no kubelet could start them."""
    made = []

    def run(**spec):
        made.append(Run(cluster, api, namespace, **spec).start())
        return made[-1]

    yield run
    for each in made:
        each.kubectl("delete", "tp", each.name, "--wait=false", "--ignore-not-found")
    cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--force", "--grace-period=0")


def claims(cluster, namespace):
    """Allocated devices by plan: pool and name of each."""
    found = {}
    for claim in cluster.api.get("resourceclaims", namespace=namespace)["items"]:
        allocation = claim.get("status", {}).get("allocation", {})
        held = [(r["pool"], r["device"]) for r in allocation.get("devices", {}).get("results", ())]
        found[claim["metadata"].get("labels", {}).get("rightsizer.dev/plan", "")] = held
    return found


@pytest.fixture
def hold(cluster, namespace):
    """hold(node, gpus): another pod that claims GPUs of a node."""

    def make(node, gpus):
        exactly = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": gpus}
        devices = {"requests": [{"name": "gpus", "exactly": exactly}]}
        template = {"metadata": {"name": "held"}, "spec": {"spec": {"devices": devices}}}
        container = {
            "name": "c",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"claims": [{"name": "g"}]},
        }
        spec = {
            "containers": [container],
            "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "held"}],
            "nodeSelector": {"kubernetes.io/hostname": node},
        }
        kinds = (
            ("resource.k8s.io/v1", "ResourceClaimTemplate", template),
            ("v1", "Pod", {"metadata": {"name": "hold"}, "spec": spec}),
        )
        for version, kind, document in kinds:
            cluster.apply(json.dumps({"apiVersion": version, "kind": kind, **document}), namespace)
        cluster.wait(
            f"{gpus} GPUs of {node} held", lambda: len(claims(cluster, namespace).get("", ())) == gpus
        )

    return make


def test_a_plan_s_pods_claim_free_gpus_of_its_type_and_the_claims_go_with_it(
    start, hold, cluster, namespace, nodes
):
    hold(nodes[0], 6)
    first = start(**whole_pods(4))
    cluster.wait("its GPUs", lambda: len(claims(cluster, namespace).get(first.name, ())) == 4)
    assert {node for node, _ in claims(cluster, namespace)[first.name]} == {nodes[1]}
    (pod,) = first.pods()
    assert pod["spec"]["nodeName"] == nodes[1]
    second = start(**whole_pods(8, "second"))
    second.until("WaitingForGPUs")
    told = f"node {nodes[1]} has 4 of 8 GPUs free; node {nodes[0]} has 2 of 8 GPUs free"
    cluster.wait("what each node lacks", lambda: told in second.condition("Admitted")["message"])
    first.kubectl("delete", "tp", first.name)
    first.kubectl(
        "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0", "--ignore-not-found"
    )
    cluster.wait("its GPUs", lambda: len(claims(cluster, namespace).get("second", ())) == 8)
    templates = cluster.api.get("resourceclaimtemplates", namespace=namespace)["items"]
    assert {each["metadata"]["name"] for each in templates} == {"held", "second-a1"}


def test_devices_that_appear_wake_a_plan_that_waits_for_them(start, api, cluster, namespace, nodes):
    api("DELETE", f"{API}/resourceslices/{nodes[0]}-gpus")
    api("DELETE", f"{API}/resourceslices/{nodes[1]}-gpus")
    waiting = start(**whole_pods(8))
    waiting.until("NoSuchGPUs")
    assert "there is 8 x A100-SXM4-80GB" in waiting.condition("Sized")["message"]
    for node in nodes[:2]:
        api("POST", f"{API}/resourceslices", slice_of(node, H100))
    cluster.wait("its GPUs", lambda: len(claims(cluster, namespace).get(waiting.name, ())) == 8, within_s=20)
