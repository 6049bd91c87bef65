"""The closed loop on a real control plane: what a real Prometheus saw decides about real trainings."""

import datetime as dt
import logging
import time

import pytest
from followed import resized, wait
from panels import questions

from rightsizer_api.quantities import parse_time
from rightsizer_telemetry.client import FailedQuery

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)

ON_ONE = {"nodeSelector": {"kubernetes.io/hostname": "n3"}}
APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"rightsizer.dev/role": "worker"}},
                }
            ]
        }
    }
}
PLANS = {
    # its user asks for two GPUs to begin with; by its pace one will do
    "early": {"mode": "Recommend", "finish": "40d", "least": 2, "env": {"STEP_SECONDS": "0.24"}},
    # by prediction one GPU is enough; by its pace it is not
    "late": {"finish": "60d", "env": {"STEP_SECONDS": "1.3"}},
    # the same, and most of a step waits for data
    "starved": {
        "finish": "60d",
        "env": {"STEP_SECONDS": "1.3", "STALL": "0.6"},
        "notes": {"rightsizer.test/busy": "0.3", "rightsizer.test/tensor": "0.05"},
    },
    # late too, and there is no place for a second worker
    "cornered": {"finish": "60d", "env": {"STEP_SECONDS": "1.3"}, "pods": {**ON_ONE, **APART}},
}
NO_PLACE = {"containers": [{"name": "trainer", "resources": {"requests": {"cpu": "900"}}}]}
SHORT = {
    "model": {"dimensions": {"layers": 4, "hidden": 192, "ffnHidden": 512, "heads": 4, "vocab": 256}},
    "workload": {"tokens": "10k", "sequenceLength": 128, "globalBatchSequences": 24, "precision": "fp32"},
}
RESIZES = {
    "early": [(2, 1, "Measured")],
    "late": [(1, 2, "Measured")],
    "starved": [],
    "cornered": [(1, 2, "Measured"), (2, 1, "Failure")],
}
"""All that is ever done to them."""


@pytest.fixture(scope="module")
def runs(launch, strangers):
    """All of them, side by side."""
    return {name: launch(name, **what) for name, what in PLANS.items()}


def told(run):
    """Its newest recommendation."""
    return run.status.get("recommendation", {})


def test_too_many_gpus_are_flagged_with_evidence_and_kept(runs):
    run = runs["early"]
    wait(run, "a recommendation", lambda: told(run).get("action") == "Shrink")
    said = told(run)
    LOG.info(f"{said}")
    assert (said["gpus"], run.condition("OverProvisioned")["status"]) == (1, "True")
    assert "window" in said["evidence"][0]
    assert "samples" in said["evidence"][0]
    assert any("tokens/s on 2 GPUs" in line for line in said["evidence"])
    assert any(line.startswith("avg_over_time(rightsizer:gpu_busy:ratio{") for line in said["evidence"])
    assert "mode is Recommend" in said["reason"]
    assert resized(run) == []


def test_waiting_for_data_is_named_and_not_resized(runs):
    run = runs["starved"]
    wait(run, "a flag", lambda: told(run).get("action") == "Flag")
    assert "waits for data" in told(run)["reason"]
    assert run.condition("OverProvisioned")["reason"] == "NotUsed"
    assert resized(run) == []


def test_a_plan_that_falls_behind_grows(runs):
    run = runs["late"]
    wait(run, "growth", lambda: (1, 2, "Measured") in resized(run))
    run.steps_with(2)


def test_growth_that_finds_no_room_is_taken_back_once(runs):
    _goes_back(runs["cornered"])


@pytest.mark.nightly
def test_growth_that_crashes_is_taken_back_once(launch):
    run = launch("crashing", finish="60d", env={"STEP_SECONDS": "1.3", "CRASH_AT": "2"})
    _goes_back(run)
    assert resized(run) == RESIZES["cornered"]


def _goes_back(run):
    wait(run, "the way back", lambda: resized(run) == RESIZES["cornered"])
    run.steps_with(1, after=parse_time(run.status["resizes"][-1]["at"]).timestamp())
    wait(run, "people are told", lambda: told(run).get("action") == "Flag")


def test_mode_auto_returns_gpus_to_a_waiting_job_and_training_continues(runs, somebody_waits):
    run = runs["early"]
    run.patch(elasticity={"mode": "Auto"})
    wait(run, "nobody waits", lambda: "no other job waits" in told(run).get("reason", ""))
    somebody_waits(run.namespace)
    before = [r for r, _ in run.records() if r["event"] == "step"]
    wait(run, "one GPU", lambda: resized(run) == [(2, 1, "Measured")])
    began = time.time()
    run.steps_with(1, after=began)
    after = [r for r, _ in run.records() if r["event"] == "step" and r["world"] == 1]
    LOG.info(f"loss {before[0]['loss']:.4f} ... {before[-1]['loss']:.4f}, then {after[0]['loss']:.4f}")
    assert after[0]["step"] > before[-1]["step"]
    assert after[0]["loss"] < before[0]["loss"] / 2
    wait(
        run,
        "an estimate of the new pace",
        lambda: parse_time(run.status["observed"]["updatedAt"]).timestamp() > began,
    )
    assert parse_time(run.status["eta"]) < parse_time(run.status["deadline"])


def test_every_panel_shows_something_of_it(runs, asked):
    boards = questions("fleet", "plan", "waste", "operator")
    empty = {panel: expr for panel, expr in boards if "Slurm" not in panel}
    end_s = time.monotonic() + 90
    while empty and time.monotonic() < end_s:
        answers = {panel: asked.instant(expr) for panel, expr in empty.items()}
        wrong = {panel: answer.reason for panel, answer in answers.items() if isinstance(answer, FailedQuery)}
        assert wrong == {}
        empty = {panel: expr for panel, expr in empty.items() if not answers[panel]}
        time.sleep(2)
    assert list(empty) == []


def test_a_blocked_plan_is_late_and_the_alert_sees_it(launch, asked):
    """It is late from a minute on, for a start takes five. A deadline of fewer has no plan."""
    run = launch("blocked", finish="6m", work=SHORT, pods=NO_PLACE)
    wait(run, "no place", lambda: run.state == "Unschedulable")
    wait(run, "the deadline is at risk", lambda: run.condition("DeadlineAtRisk")["status"] == "True")
    status, now = run.status, dt.datetime.now(dt.UTC)
    LOG.info(f"due {status['deadline']}, expected {status['eta']}, {run.condition('DeadlineAtRisk')}")
    assert parse_time(status["eta"]) >= now
    assert parse_time(status["eta"]) > parse_time(status["deadline"])
    late = 'ALERTS{alertname="RightsizerPlanLate", plan="blocked"}'  # pending: it fires after 15 minutes
    wait(run, "the alert", lambda: asked.instant(late))
    (margin,) = asked.instant('rightsizer:plan_margin:seconds{plan="blocked"}')
    assert margin.value < 0


def test_no_job_flaps(runs):
    assert {name: resized(run) for name, run in runs.items()} == RESIZES
