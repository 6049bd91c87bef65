"""Free GPUs are where whole pods can be placed, and what tenants claim by labels counts for nothing."""

import json

import pytest
import yaml
from planrun import IDLE

pytestmark = pytest.mark.kubernetes

NODE = "kubernetes.io/hostname"


def pods_of(gpus, **spec):
    """The spec of a plan for one pod of so many GPUs."""
    size = {"gpus": gpus, "minGPUs": gpus, "maxGPUs": gpus, "gpusPerNode": 8}
    template = {"podTemplate": {"spec": spec}} if spec else {}
    return {"resources": size, "layout": {"microBatch": 1}, "launch": IDLE | template}


@pytest.fixture
def hold(cluster, namespace):
    """hold(node, gpus): a pod with the labels of the plan's workers that holds GPUs of a node."""

    def make(node, gpus):
        container = {
            "name": "c",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }
        labels = {"rightsizer.dev/plan": "small-gpt", "rightsizer.dev/role": "worker"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"hold-{node}", "labels": labels},
            "spec": {
                "containers": [container],
                "nodeSelector": {NODE: node},
                "terminationGracePeriodSeconds": 0,
            },
        }
        cluster.apply(json.dumps(pod), namespace)
        held = lambda: (
            cluster.api.get("pod", f"hold-{node}", namespace=namespace)["status"]["phase"] == "Running"
        )
        cluster.wait(f"{gpus} GPUs of {node} held", held)

    yield make
    cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", "--force", "--grace-period=0")


def test_a_pod_that_fits_on_no_node_is_not_launched_and_each_node_s_lack_is_listed(start, hold, cluster):
    nodes = sorted(cluster.ready_nodes())
    for node in nodes:
        hold(node, 7)
    run = start(**pods_of(8))
    run.until("WaitingForGPUs")
    # pods of the test before may end late
    told = lambda: all(
        f"node {node} has 1 of 8 GPUs free" in run.condition("Admitted")["message"] for node in nodes
    )
    cluster.wait("what each node lacks", told)
    assert run.jobs == []
    cluster.kubectl("taint", "node", nodes[0], "team=nlp:NoSchedule")
    try:
        run.kubectl("delete", "pod", f"hold-{nodes[0]}", "--wait")
        told = f"node {nodes[0]} has taint team=nlp:NoSchedule"
        cluster.wait("the taint is named", lambda: told in run.condition("Admitted")["message"])
        assert run.jobs == []
    finally:
        cluster.kubectl("taint", "node", nodes[0], "team-")
    cluster.wait("its pod is placed", lambda: any(_node(pod) == nodes[0] for pod in run.pods()))


def _gpu_containers(cluster, node):
    """The containers on a node that hold GPUs."""
    pods = [pod["spec"] for pod in cluster.api.get("pods")["items"]]
    there = [each for spec in pods if spec.get("nodeName") == node for each in spec["containers"]]
    return [each for each in there if "nvidia.com/gpu" in each.get("resources", {}).get("limits", {})]


def _node(pod):
    return pod["spec"].get("nodeName") if pod["metadata"]["name"].startswith("small-gpt-a") else None


def test_a_part_of_a_node_is_enough_whatever_plans_claim_elsewhere(start, plan, hold, cluster):
    first, *others = sorted(cluster.ready_nodes())
    hold(first, 1)
    for node in others:
        name = {"name": f"on-{node}"}
        elsewhere = plan(metadata=name, **pods_of(8, nodeSelector={NODE: node})).start()
        cluster.wait("a Job elsewhere", lambda run=elsewhere: f"{run.name}-a1" in run.jobs)
    run = start(**pods_of(4, nodeSelector={NODE: first}))
    cluster.wait("its pod is placed", lambda: any(_node(pod) == first for pod in run.pods()))


@pytest.mark.parametrize("again", range(5))
def test_two_plans_never_get_the_same_gpus_beside_a_bare_pod(plan, hold, cluster, namespace, again):
    """The claims of a Job that is about to be created have no owner yet, nor has a bare pod."""
    node = min(cluster.ready_nodes())
    cluster.wait("the pods of the try before are gone", lambda: not _gpu_containers(cluster, node))
    hold(node, 1)
    runs = [plan(metadata={"name": name}, **pods_of(4, nodeSelector={NODE: node})) for name in ("a", "b")]
    cluster.apply(yaml.safe_dump_all([runs[0].claim, *(run.document for run in runs)]), namespace)
    waiting = lambda: [run.name for run in runs if run.state == "WaitingForGPUs"]
    launched = lambda: [name.removesuffix("-a1") for name in runs[0].jobs]
    # both wait at first where the operator's list of pods still has those of the try before
    settled = lambda: launched() and len(launched() + waiting()) == len(runs)
    cluster.wait("both are launched, or one waits", settled)
    assert len(launched()) == 1, f"try {again}: {launched()} launched, {waiting()} waits"


def test_a_job_with_our_labels_claims_no_gpus(start, cluster, namespace):
    labels = {
        "app.kubernetes.io/managed-by": "rightsizer",
        "rightsizer.dev/plan": "small-gpt",
        "rightsizer.dev/attempt": "7",
    }
    limits = {"limits": {"nvidia.com/gpu": "8"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": limits}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "small-gpt-a7",
            "labels": labels,
            "annotations": {"rightsizer.dev/gpu-type": "H100-SXM5-80GB"},
        },
        "spec": {
            "parallelism": 10**6,
            "completions": 10**6,
            "managedBy": "example.com/nobody",
            "template": {"spec": pod},
        },
    }
    cluster.apply(json.dumps(job), namespace)
    run = start(**pods_of(8))
    cluster.wait("a Job", lambda: "small-gpt-a1" in run.jobs, within_s=20)
    cluster.wait("its pod is placed", lambda: any(_node(pod) for pod in run.pods()))


@pytest.fixture
def sliced(cluster, api):
    """A node with seven MIG slices of one profile, as of the strategy `mixed`; their resource."""
    node, resource = min(cluster.ready_nodes()), "nvidia.com/mig-1g.10gb"
    entry = {"path": f"/status/capacity/{resource.replace('/', '~1')}"}
    path = f"/api/v1/nodes/{node}/status"
    api("PATCH", path, [entry | {"op": "add", "value": "7"}], kind="json-patch+json")
    cluster.kubectl("label", "node", node, f"{resource}.product=NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
    allocatable = lambda: cluster.api.get("node", node)["status"]["allocatable"]
    cluster.wait("slices", lambda: allocatable().get(resource) == "7")
    yield node, resource
    cluster.kubectl("label", "node", node, f"{resource}.product-")
    api("PATCH", path, [entry | {"op": "remove"}], kind="json-patch+json")


def test_a_plan_for_a_mig_slice_takes_one_of_the_node_that_has_it(start, sliced, cluster):
    node, resource = sliced
    spec = pods_of(1)
    spec["resources"] |= {"gpuTypes": ["H100-SXM5-80GB-MIG-1g.10gb"]}
    run = start(**spec)
    cluster.wait("its pod is placed", lambda: any(_node(pod) == node for pod in run.pods()))
    (pod,) = run.pods()
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {resource: "1"}
