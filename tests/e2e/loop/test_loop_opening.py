"""Plans that open at the likely size on a real control plane: measured, then resized; idle ones suspended."""

import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from followed import resized, wait

from rightsizer_api.quantities import parse_time

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]
LOG = logging.getLogger(__name__)

LOOK_S = 30.0  # HASTE
SCALES = {
    "model": {"dimensions": {"layers": 12, "hidden": 1024, "ffnHidden": 4096, "heads": 16, "vocab": 32000}},
    "workload": {
        "tokens": "100B",
        "sequenceLength": 4096,
        "globalBatchSequences": 48,
        "precision": "bf16",
        "attention": "flash",
    },
}
"""Many tokens a step for its gradients: a second GPU, in another pod, nearly doubles its rate."""


@pytest.fixture(scope="module")
def runs(launch, opens):
    """One believed too fast: one GPU is too few. One believed too slow: one of its two GPUs is enough."""
    return {
        "hopeful": launch("hopeful", most=4, wanted=opens(1), share=1.1, work=SCALES),
        "fearful": launch("fearful", wanted=lambda plan: plan.option.gpus == 2, share=0.4, work=SCALES),
    }


def why(run):
    """The output of `kubectl rightsizer why`."""
    argv = [run.cluster.kubectl_path, "rightsizer", "why", run.name, f"--namespace={run.namespace}"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "KUBECONFIG": str(run.cluster.kubeconfig), "PATH": path}
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_plan_opens_small_and_reports_its_reserve(runs):
    run = runs["hopeful"]
    wait(run, "a size", lambda: "opening" in run.status.get("sizing", {}))
    opening = run.status["sizing"]["opening"]
    LOG.info(opening["text"])
    assert run.status["attempt"]["gpus"] == opening["gpus"] == 1
    assert opening["staticGPUs"] > opening["gpus"]
    assert opening["text"] in why(run)
    row = run.kubectl("get", "tp", run.name, "--no-headers").split()
    assert row[1:3] == ["1", str(opening["reserveGPUs"])]


def test_too_slow_it_is_measured_and_grows_once_within_its_reserve_and_is_in_time(runs):
    run = runs["hopeful"]
    wait(run, "growth", lambda: resized(run))
    ((before, after, cause),) = resized(run)
    row, opening = run.status["resizes"][0], run.status["sizing"]["opening"]
    LOG.info(f"{row}")
    assert (before, cause) == (1, "Measured")
    assert before < after <= opening["reserveGPUs"]
    assert "past the deadline" in row["reason"]
    first = next(record for record, _ in run.records() if record["event"] == "step")["time"]
    assert parse_time(row["at"]).timestamp() - first >= LOOK_S - 1
    run.steps_with(after)
    wait(run, "in time", lambda: run.condition("DeadlineAtRisk")["reason"] == "OnTime")
    assert parse_time(run.status["eta"]) < parse_time(run.status["deadline"])


def test_a_plan_faster_than_predicted_returns_gpus_to_a_waiting_job(runs, somebody_waits):
    run = runs["fearful"]
    run.steps_with(2)
    somebody_waits(run.namespace)
    wait(run, "one GPU", lambda: resized(run) == [(2, 1, "Measured")])
    run.steps_with(1, after=parse_time(run.status["resizes"][0]["at"]).timestamp())
    assert run.condition("DeadlineAtRisk")["reason"] == "OnTime"


def test_an_idle_plan_is_warned_then_suspended_and_resumed_by_its_user(launch):
    run = launch(
        "idler",
        finish="60d",
        env={"STEP_SECONDS": "0.3", "STANDS_STILL_AT": "20"},
        notes={"rightsizer.test/busy": "0", "rightsizer.test/tensor": "0"},
        idle={"whenIdle": "Suspend", "idleGrace": "20s"},
    )
    wait(run, "a warning", lambda: run.condition("Idle")["status"] == "True")
    warned = run.condition("Idle")
    LOG.info(f"{warned}")
    run.until("Suspended")
    said = run.condition("Idle")
    LOG.info(f"{said}")
    assert "busiest GPU is 0% busy" in said["message"]
    assert "window" in said["message"]
    wait(run, "its pods ended", lambda: run.pods() == [])
    assert "IdleSuspended" in run.kubectl("get", "events")
    text = why(run)
    assert "kubectl rightsizer resume idler" in text
    run.patch(suspend=False)
    began = time.time()
    run.steps_with(1, after=began)
    assert run.condition("Idle")["status"] != "True"


def test_no_size_has_flapped(runs):
    assert [cause for _, _, cause in resized(runs["hopeful"])] == ["Measured"]
    assert resized(runs["fearful"]) == [(2, 1, "Measured")]
