import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.nightly]

SCRIPT = Path(__file__).resolve().parent / "cluster" / "train.py"
JOB = (Path(__file__).resolve().parent / "cluster" / "elastic_job.yaml").read_text()


def _step_and_world(log):
    said = re.findall(r"step (\d+) world (\d+)", log)
    return tuple(map(int, said[-1])) if said else (0, 0)


def _workers(cluster, namespace):
    pods = cluster.api.get("pods", selector="role=worker", namespace=namespace)["items"]
    return {pod["spec"].get("nodeName"): pod["metadata"]["name"] for pod in pods}


def _progress(cluster, namespace):
    logs = (cluster.logs(pod, namespace) for pod in _workers(cluster, namespace).values())
    return max((_step_and_world(log) for log in logs), default=(0, 0))


def test_torchrun_trains_on_two_nodes_and_continues_when_one_dies(cluster, namespace):
    cluster.apply(JOB.replace("{script}", str(SCRIPT)), namespace)
    cluster.wait("a world of two", lambda: _progress(cluster, namespace)[1] == 2, within_s=240)
    assert set(_workers(cluster, namespace)) == {"n2", "n3"}
    survivor = _workers(cluster, namespace)["n2"]
    cluster.control("node-kill", "3")
    try:
        cluster.wait(
            "a world of one", lambda: _step_and_world(cluster.logs(survivor, namespace))[1] == 1, within_s=240
        )
        resumed = re.findall(r"rank 0/1 resumes at step (\d+)", cluster.logs(survivor, namespace))
        assert int(resumed[-1]) > 0
    finally:
        cluster.control("node-start", "3")
    cluster.wait("node 3 again", lambda: "n3" in cluster.ready_nodes())
