"""The failure budget in the plan's status, and the limit of the start-up time."""

import dataclasses
import datetime as dt

import pytest

from rightsizer_operator.values.actions import PatchJob
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import ReportedProgress

STEPS = ReportedProgress(tokens=1e5, tokens_per_s=10.0, step=7)
END = {"activeDeadlineSeconds": 1}


def launched(fake_cluster, spec=None):
    run = fake_cluster(spec).settle()
    run.job(startTime="2026-11-21T12:00:00Z", ready=0)
    return run.settle()


def crash(run, number, *, ran_s=30, code=137, reason="OOMKilled", **more):
    """One more start of both pods that fails after `ran_s` seconds, 20 s after the previous one."""
    began = run.now + dt.timedelta(seconds=20)
    run.now = began + dt.timedelta(seconds=ran_s)
    ended = {"phase": "Failed", "exit_code": code, "reason": reason, "created": began, "started_at": began}
    run.pods += tuple(
        Pod(name=f"w{i}-{number}", attempt=1, finished_at=run.now, **(ended | more)) for i in (0, 1)
    )
    run.job(failed=2 * number)
    return run.settle()


def ends(run):
    return [action for action in run.log if isinstance(action, PatchJob) and action.spec == END]


def test_three_starts_without_a_step_fail_the_plan_with_the_cause_and_end_its_job_once(fake_cluster):
    run = launched(fake_cluster)
    for number in (1, 2):
        crash(run, number)
        assert run.state == "Starting"
        assert "OOMKilled, exit code 137" in run.condition("Ready")["message"]
    crash(run, 3)
    failed = run.condition("Failed")
    assert (run.state, failed["reason"], len(ends(run))) == ("Failed", "RestartsExceeded", 1)
    assert "3 consecutive failures without a new step" in failed["message"]
    assert "OOMKilled, exit code 137, SIGKILL, pod w0-3" in failed["message"]
    run.ends("Failed", reason="DeadlineExceeded", message="was active too long").settle()
    assert run.condition("Failed") == failed


def test_pods_that_fail_together_are_one_failure(fake_cluster):
    run = crash(launched(fake_cluster), 1)
    assert [failure["pod"] for failure in run.plan["status"]["failures"]] == ["w0-1"]
    assert run.plan["status"]["observed"]["restarts"] == 1


@pytest.mark.parametrize(
    ("pods", "every_s", "trains", "failures"),
    [(5, 90, False, 1), (3, 5400, True, 3)],
    ids=["one-after-another-is-one-failure", "while-the-others-train-is-one-each"],
)
def test_pods_of_one_start_that_fail_apart(fake_cluster, pods, every_s, trains, failures):
    run = launched(fake_cluster)
    began = run.now
    for number in range(pods):
        run.later(seconds=every_s)
        if trains:
            run.progress = dataclasses.replace(STEPS, step=100 * (number + 1))
        failed = {"phase": "Failed", "exit_code": 1, "created": began, "finished_at": run.now}
        run.pods += (Pod(name=f"w{number}", attempt=1, **failed),)
        run.settle()
    assert len(run.plan["status"]["failures"]) == failures


def test_a_new_operator_keeps_the_count_of_deleted_pods(fake_cluster):
    run = launched(fake_cluster)
    for number in (1, 2, 3):
        run.pods = ()
        crash(run, number)
    assert run.state == "Failed"


def test_failures_between_which_training_advances_count_by_their_rate_only(fake_cluster):
    run = launched(fake_cluster, {"launch": {"restarts": {"limit": 4, "within": "1h"}}})
    states = []
    for number in range(1, 6):
        run.progress = dataclasses.replace(STEPS, step=10 * number)
        crash(run, number)
        states.append(run.state)
    assert states == ["Starting"] * 4 + ["Failed"]
    assert "5 failures within 3600 s" in run.condition("Failed")["message"]


def test_a_silent_script_whose_pods_ran_for_long_has_trained(fake_cluster):
    run = launched(fake_cluster)
    for number in range(1, 9):
        crash(run, number, ran_s=7200)
    assert run.state != "Failed"


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": 75, "reason": "Error"},
        {"disrupted": True},
        {"deletion_deadline": dt.datetime(2026, 11, 21, 13, tzinfo=dt.UTC)},
    ],
    ids=["stopped on request", "preempted or on a dead node", "deleted"],
)
def test_a_pod_that_the_cluster_stopped_has_not_failed(fake_cluster, change):
    run = launched(fake_cluster)
    for number in range(1, 6):
        crash(run, number, **change)
    assert "failures" not in run.plan["status"]


def test_a_pod_evicted_for_its_usage_has_failed(fake_cluster):
    assert crash(launched(fake_cluster), 1, reason="Evicted", disrupted=True).plan["status"]["failures"]


def test_a_new_attempt_has_a_new_budget(fake_cluster):
    run = crash(launched(fake_cluster), 1)
    run.edit(launch={"image": "ghcr.io/acme/train:1.5"}).settle()
    assert run.plan["status"]["attempt"]["number"] == 2
    assert "failures" not in run.plan["status"]


def test_failures_that_somebody_wrote_into_the_status_end_nothing(fake_cluster):
    run = launched(fake_cluster)
    forged = {"at": "2026-11-21T12:00:00Z", "pod": "w0", "message": "", "step": 0, "trained": False}
    run.plan["status"]["failures"] = [forged] * 20
    assert run.settle().state == "Starting"
    assert not ends(run)


def holding(run):
    run.pods = (Pod(name="w0", attempt=1, node="n0", phase="Running"),)
    return run


def test_workers_that_are_never_all_ready_give_their_gpus_back(fake_cluster):
    run = holding(launched(fake_cluster))
    assert run.later(minutes=59).settle().state == "Starting"
    assert run.later(minutes=1).settle().state == "Failed"
    assert run.condition("Failed")["reason"] == "StartTimeout"
    assert len(ends(run)) == 1


def test_a_silent_script_that_loses_a_worker_later_has_started(fake_cluster):
    run = launched(fake_cluster, {"elasticity": {"mode": "Off"}}).later(minutes=5)
    run.job(ready=2)
    run.settle().later(minutes=60)
    holding(run).job(ready=1)
    assert run.settle().state == "Recovering"


def test_workers_that_hold_no_gpu_may_wait(fake_cluster):
    assert launched(fake_cluster).later(hours=5).settle().state == "Starting"


@pytest.mark.parametrize(
    ("spec", "progress", "state"),
    [
        ({}, None, "Running"),
        ({"launch": {"startTimeout": "30m"}}, None, "Failed"),
        ({}, dataclasses.replace(STEPS, tokens_per_s=0.0), "Failed"),
        ({"launch": {"startTimeout": "30m"}}, STEPS, "Running"),
    ],
    ids=["silent", "silent, with a limit", "an agent without a step", "trains"],
)
def test_a_start_without_a_step_is_ended_where_that_is_known(fake_cluster, spec, progress, state):
    run = launched(fake_cluster, spec)
    run.progress = progress
    run.job(ready=2)
    assert run.settle().later(minutes=61).settle().state == state


def test_a_resumed_job_has_its_whole_start_up_time_again(fake_cluster):
    run = holding(launched(fake_cluster))
    run.edit(suspend=True).settle().later(hours=5)
    run.edit(suspend=False).settle().job(startTime="2026-11-21T17:00:00Z")
    assert run.settle().state == "Starting"
