"""Layouts, limits and settings as real workers meet them."""

import json
import logging
import time

import pytest
from planrun import IDLE, PACED_EXAMPLE

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
EXAMPLE = {"command": [str(PACED_EXAMPLE)]}
TWO_IN_A_POD = {"gpusPerNode": 2, "minGPUs": 2, "maxGPUs": 2}


def test_a_tensor_parallel_run_becomes_data_parallel_and_its_loss_continues(start):
    split = {"tp": 2, "dp": 1}
    run = start(launch={"framework": "custom", **EXAMPLE}, resources=TWO_IN_A_POD, layout=split)
    run.steps_with(2)
    run.cluster.wait("a checkpoint", lambda: run.last()[0] > 20)
    assert run.status["attempt"]["layout"]["tp"] == 2
    losses = [r["loss"] for r, _ in run.records() if r["event"] == "step"]
    began = time.time()
    run.patch(layout={"tp": 1, "dp": 2})
    run.cluster.wait("attempt 2", lambda: run.jobs == [f"{run.name}-a2"], within_s=120)
    run.steps_with(2, after=began)
    resumed = next(r for r, _ in run.records() if r["event"] == "start")
    first = next(r for r, _ in run.records() if r["event"] == "step")
    LOG.info(f"TP 2 -> DP 2: step {first['step']}, loss {first['loss']:.3f} after {losses[-1]:.3f}")
    assert resumed["step"] > 0
    assert abs(first["loss"] - losses[-1]) < 0.5 * (losses[0] - losses[-1])
    assert run.status["attempt"]["layout"]["dp"] == 2
    assert "attempt 2" in run.status["resizes"][-1]["reason"]


@pytest.mark.nightly
def test_workers_read_deepspeed_s_settings_from_its_configmap(start):
    run = start(
        launch={"framework": "deepspeed", "command": ["/bin/sh", "-c", "cat /etc/rightsizer/*; sleep 5"]}
    )
    run.until("Complete")
    pod = min(pod["metadata"]["name"] for pod in run.pods())
    text = run.cluster.logs(pod, run.namespace)
    settings = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert settings["train_batch_size"] == 24
    assert settings["train_micro_batch_size_per_gpu"] == 4


def test_a_quota_is_a_reported_limit_that_is_checked_again(start, cluster, namespace):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    cluster.apply(json.dumps(quota), namespace)
    cluster.wait(
        "the quota counts", lambda: cluster.api.get("quota", "gpus", namespace=namespace).get("status")
    )
    run = start(launch=IDLE)
    run.until("InsufficientGPUs")
    assert "leave 1" in run.condition("Sized")["message"]
    quota["spec"]["hard"]["requests.nvidia.com/gpu"] = "2"
    cluster.apply(json.dumps(quota), namespace)
    run.cluster.wait("a Job", lambda: run.jobs)
    assert run.status["attempt"]["gpus"] == 2
