"""`rightsizer doctor`: what each gap looks like, in one line with its remedy."""

import json
import subprocess
from dataclasses import replace

import pytest

from rightsizer_api.schema.crd import crd
from rightsizer_cli.commands.doctor import kubernetes, machine
from rightsizer_cli.commands.doctor.findings import Status
from rightsizer_cli.kubectl_client import Client, Where
from rightsizer_cli.main import execute

GIB = 2**30
TORCH = machine.Torch(version="2.9.0", build="12.8", gpus=2, nccl="2.27.3", gloo=True)
SOUND = {
    "torch": TORCH,
    "torch_error": "",
    "gpus": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    "disk_bytes": 100 * GIB,
    "shared_bytes": 8 * GIB,
    "open_files": 65_536,
}


def on_machine(**changes):
    return list(machine.findings(machine.Facts(**SOUND | changes)))


def test_a_sound_machine_lacks_nothing():
    found = on_machine()
    assert {finding.status for finding in found} == {Status.OK}
    assert [finding.line for finding in found][:2] == [
        "ok      GPUs: 2 x H100-SXM5-80GB",
        "ok      torch: 2.9.0, built for 12.8",
    ]


@pytest.mark.parametrize(
    ("changes", "status", "line"),
    [
        ({"torch": None, "torch_error": "No module named 'torch'"}, Status.MISSING, "pip install torch"),
        ({"torch": replace(TORCH, build="", gpus=0)}, Status.MISSING, "sees none of 2 GPUs"),
        ({"torch": replace(TORCH, nccl="")}, Status.MISSING, "NCCL"),
        ({"torch": replace(TORCH, build="", gpus=0, gloo=False), "gpus": ()}, Status.MISSING, "gloo"),
        ({"gpus": ()}, Status.MISSING, "torch sees 2, NVML none"),
        ({"gpus": ("NVIDIA H100 80GB HBM3", "Tesla T4")}, Status.MISSING, "several types"),
        ({"gpus": ("Voodoo 2",)}, Status.MISSING, "not in the catalog"),
        ({"disk_bytes": GIB}, Status.NOTE, "disk here: 1GiB, less than 20GiB"),
        ({"shared_bytes": 64 * 2**20}, Status.NOTE, "shm: 64MiB"),
        ({"open_files": 1024}, Status.NOTE, "ulimit -n 4096"),
    ],
)
def test_a_gap_of_the_machine_is_one_line_with_its_remedy(changes, status, line):
    gaps = [finding for finding in on_machine(**changes) if finding.status is not Status.OK]
    assert gaps[-1].status is status
    assert line in gaps[-1].line
    assert gaps[-1].remedy


def node(name, *, gpus="8", product="NVIDIA-H100-80GB-HBM3", ready="True", version="v1.34.1"):
    labels = {"nvidia.com/gpu.product": product} if product else {}
    allocatable = {"nvidia.com/gpu": gpus} if gpus else {}
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"kubeletVersion": version},
        },
    }


OPERATOR = {
    "metadata": {"name": "rightsizer", "namespace": "rightsizer-system"},
    "spec": {"replicas": 1},
    "status": {"readyReplicas": 1},
}
CLUSTER = {
    "namespaces": [],
    "crd": [crd()],
    "deployments": [OPERATOR],
    "nodes": [node("a"), node("b")],
    "pods": [{"metadata": {"name": "cilium-x2b4p"}, "status": {}}],
    "storageclasses": [{"metadata": {"name": "shared"}, "provisioner": "nfs.csi.k8s.io"}],
    "persistentvolumes": [],
    "localqueues.kueue.x-k8s.io": [{"metadata": {"name": "gpus", "namespace": "nlp"}}],
    "deviceclasses.resource.k8s.io": [],
    "resourceslices.resource.k8s.io": [],
    "jobsets.jobset.x-k8s.io": [],
    "trainjobs.trainer.kubeflow.org": [],
    "namespace": [
        {"metadata": {"name": "nlp", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    ],
}


def on_cluster(series=16, **changes):
    """The findings of a cluster: kind -> objects, None for a refusal of the API server."""
    objects = CLUSTER | changes

    def run(arguments):
        kind, *names = [w for w in arguments[arguments.index("get") + 1 :] if not w.startswith("-")]
        items = objects[kind]
        if items is None or (names and not items):
            return subprocess.CompletedProcess(arguments, 1, "", f"error: {kind} is forbidden\n")
        return subprocess.CompletedProcess(
            arguments, 0, json.dumps(items[0] if names else {"items": items}), ""
        )

    client = Client(where=Where(namespace="nlp"), run=run)
    return list(kubernetes.findings(client, series=lambda _: series))


def test_a_sound_cluster_lacks_nothing():
    found = on_cluster()
    assert {finding.status for finding in found} == {Status.OK}
    assert "ok      GPUs: 16 H100-SXM5-80GB on 2 nodes" in [finding.line for finding in found]


def waiting(reason, image="ghcr.io/acme/rightsizer:0", **labels):
    states = [{"image": image, "state": {"waiting": {"reason": reason}}}]
    return {"metadata": {"name": "rightsizer-1", "labels": labels}, "status": {"containerStatuses": states}}


OLD = crd() | {"spec": crd()["spec"] | {"versions": [{**crd()["spec"]["versions"][0], "served": False}]}}


@pytest.mark.parametrize(
    ("changes", "status", "line"),
    [
        ({"crd": []}, Status.MISSING, "rightsizer crd | kubectl apply"),
        ({"crd": [OLD]}, Status.MISSING, "defined by an older version"),
        ({"deployments": []}, Status.MISSING, "operator: not installed"),
        (
            {
                "deployments": [OPERATOR | {"status": {}}],
                "pods": [waiting("ImagePullBackOff"), *CLUSTER["pods"]],
            },
            Status.MISSING,
            "0 of 1 ready (ImagePullBackOff: ghcr.io/acme/rightsizer:0)",
        ),
        (
            {"pods": [waiting("ErrImagePull", **{"rightsizer.dev/plan": "chat"}), *CLUSTER["pods"]]},
            Status.MISSING,
            "images: plan chat: ErrImagePull: ghcr.io/acme/rightsizer:0; correct spec.launch.image",
        ),
        ({"nodes": [node("a", gpus="")]}, Status.MISSING, "none allocatable on 1 nodes"),
        (
            {"nodes": [node("a"), node("b", product="")]},
            Status.MISSING,
            "b have GPUs without a product label",
        ),
        (
            {"nodes": [node("a"), node("b", product="Voodoo-2")]},
            Status.MISSING,
            "Voodoo-2 not in the catalog",
        ),
        ({"nodes": [node("a"), node("b", ready="False")]}, Status.NOTE, "b not ready or cordoned"),
        ({"pods": []}, Status.NOTE, "network policies"),
        ({"storageclasses": []}, Status.NOTE, "shared storage: none known (no storage class)"),
        ({"localqueues.kueue.x-k8s.io": None}, Status.NOTE, "Kueue: not installed"),
        ({"localqueues.kueue.x-k8s.io": []}, Status.NOTE, "without a LocalQueue"),
        ({"jobsets.jobset.x-k8s.io": None}, Status.NOTE, "spec.launch.as: JobSet needs JobSet (https://"),
        ({"deployments": None}, Status.NOTE, "not checked: deployments is forbidden"),
        ({"series": 0}, Status.MISSING, "Prometheus: has no GPU series"),
        ({"series": "no service is labelled as one"}, Status.NOTE, "no service is labelled as one"),
    ],
)
def test_a_gap_of_the_cluster_is_one_line(changes, status, line):
    gaps = [finding for finding in on_cluster(**changes) if finding.status is not Status.OK]
    assert [gap.status for gap in gaps] == [status]
    assert line in gaps[0].line


def test_an_unresponsive_api_server_is_the_only_finding():
    found = on_cluster(namespaces=None)
    assert [finding.subject for finding in found] == ["API server"]


def test_k3s_enforces_policies_without_a_pod():
    found = on_cluster(pods=[], nodes=[node("a", version="v1.34.1+k3s1")])
    assert "ok      network policies: enforced by the distribution" in [finding.line for finding in found]


def test_gpus_that_pods_can_claim_are_listed_by_class():
    attributes = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{index}", "attributes": attributes} for index in range(8)]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "a", "pool": pool, "devices": devices}
    found = on_cluster(
        nodes=[node("a", gpus="")],
        **{
            "deviceclasses.resource.k8s.io": [{"metadata": {"name": "gpu.nvidia.com"}, "spec": {}}],
            "resourceslices.resource.k8s.io": [{"metadata": {"name": "s"}, "spec": spec}],
        },
    )
    lines = [finding.line for finding in found]
    used = "the chart's gpus.deviceClass: gpu.nvidia.com uses them"
    assert f"ok      GPU claims: 8 H100-SXM5-80GB; {used}" in lines
    assert not [line for line in lines if "none allocatable" in line]


def test_an_unknown_place_is_one_error(capsys):
    assert execute(["doctor", "nowhere"]) == 2
    assert capsys.readouterr().err == "error: WHERE: 'nowhere': write machine, kubernetes, slurm\n"
