"""Checks of a cluster through kubectl: each gap is one line with its remedy."""

import json
import subprocess

import pytest
from tests.operator.kubectl.conftest import Where

from rightsizer_api.schema.crd import crd
from rightsizer_launch.findings import FindingStatus
from rightsizer_operator.kubectl import checks
from rightsizer_operator.kubectl.client import Client


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
    return list(checks.findings(client, say=print, series=lambda *_: series))


def test_a_sound_cluster_lacks_nothing():
    found = on_cluster()
    assert {finding.status for finding in found} == {FindingStatus.OK}
    assert "ok      GPUs: 16 H100-SXM5-80GB on 2 nodes" in [finding.line for finding in found]


def waiting(reason, image="ghcr.io/acme/rightsizer:0", **labels):
    states = [{"image": image, "state": {"waiting": {"reason": reason}}}]
    return {"metadata": {"name": "rightsizer-1", "labels": labels}, "status": {"containerStatuses": states}}


OLD = crd() | {"spec": crd()["spec"] | {"versions": [{**crd()["spec"]["versions"][0], "served": False}]}}


@pytest.mark.parametrize(
    ("changes", "status", "line"),
    [
        ({"crd": []}, FindingStatus.MISSING, "rightsizer crd | kubectl apply"),
        ({"crd": [OLD]}, FindingStatus.MISSING, "defined by an older version"),
        ({"deployments": []}, FindingStatus.MISSING, "operator: not installed"),
        (
            {
                "deployments": [OPERATOR | {"status": {}}],
                "pods": [waiting("ImagePullBackOff"), *CLUSTER["pods"]],
            },
            FindingStatus.MISSING,
            "0 of 1 ready (ImagePullBackOff: ghcr.io/acme/rightsizer:0)",
        ),
        (
            {"pods": [waiting("ErrImagePull", **{"rightsizer.dev/plan": "chat"}), *CLUSTER["pods"]]},
            FindingStatus.MISSING,
            "images: plan chat: ErrImagePull: ghcr.io/acme/rightsizer:0; correct spec.launch.image",
        ),
        ({"nodes": [node("a", gpus="")]}, FindingStatus.MISSING, "none allocatable on 1 nodes"),
        (
            {"nodes": [node("a"), node("b", product="")]},
            FindingStatus.MISSING,
            "b have GPUs without a product label",
        ),
        (
            {"nodes": [node("a"), node("b", product="Voodoo-2")]},
            FindingStatus.MISSING,
            "Voodoo-2 not in the catalog",
        ),
        ({"nodes": [node("a"), node("b", ready="False")]}, FindingStatus.NOTE, "b not ready or cordoned"),
        ({"pods": []}, FindingStatus.NOTE, "network policies"),
        ({"storageclasses": []}, FindingStatus.NOTE, "shared storage: none known (no storage class)"),
        ({"localqueues.kueue.x-k8s.io": None}, FindingStatus.NOTE, "Kueue: not installed"),
        ({"localqueues.kueue.x-k8s.io": []}, FindingStatus.NOTE, "without a LocalQueue"),
        (
            {"jobsets.jobset.x-k8s.io": None},
            FindingStatus.NOTE,
            "spec.launch.as: JobSet needs JobSet (https://",
        ),
        ({"deployments": None}, FindingStatus.NOTE, "not checked: deployments is forbidden"),
        ({"series": 0}, FindingStatus.MISSING, "Prometheus: has no GPU series"),
        ({"series": "no service is labelled as one"}, FindingStatus.NOTE, "no service is labelled as one"),
    ],
)
def test_a_gap_of_the_cluster_is_one_line(changes, status, line):
    gaps = [finding for finding in on_cluster(**changes) if finding.status is not FindingStatus.OK]
    assert [gap.status for gap in gaps] == [status]
    assert line in gaps[0].line


def test_an_api_server_that_does_not_answer_is_the_only_finding():
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
