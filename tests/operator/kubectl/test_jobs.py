"""Jobs that others launched in a cluster."""

import json
import subprocess

import pytest
from tests.operator.kubectl.conftest import Where

from rightsizer_engine.errors import InputError
from rightsizer_operator.kubectl.client import Client
from rightsizer_operator.kubectl.jobs import kubernetes_job


def pod(node, gpus, phase="Running"):
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": f"p-{node}"},
        "spec": {"nodeName": node, "containers": [{"resources": limits}]},
        "status": {"phase": phase, "startTime": "2026-11-23T08:00:00Z"},
    }


def client_of(job, pods):
    names = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    nodes = [{"metadata": {"name": name, "labels": names}} for name in ("a", "b")]

    def run(arguments):
        kind = next(w for w in arguments[arguments.index("get") + 1 :] if not w.startswith("-"))
        answer = {"pods": {"items": pods}, "nodes": {"items": nodes}}.get(kind, job)
        return subprocess.CompletedProcess(arguments, 0, json.dumps(answer), "")

    return Client(where=Where(), run=run)


def test_a_kubernetes_job_is_counted_by_its_running_pods():
    said = "rightsizer: model=llama-3.1-8b tokens=100B"
    job = {"metadata": {"name": "x", "annotations": {"rightsizer.dev/comment": said}}}
    found = kubernetes_job(client_of(job, [pod("a", 8), pod("b", 8), pod("b", 8, "Failed")]), "PyTorchJob/x")
    assert (found.gpus, found.gpu, found.gpus_per_node) == (16, "H100-SXM5-80GB", 8)
    assert found.plan == said
    with pytest.raises(InputError, match="no running pod with GPUs"):
        kubernetes_job(client_of(job, [pod("a", 8, "Pending")]), "job/x")
