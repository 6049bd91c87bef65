import pytest

from rightsizer_operator.values.actions import Delete, Requeue

START = "2026-11-21T12:00:00Z"
FAILED = {"reason": "DeadlineExceeded", "message": "Job was active longer than specified deadline"}


def running(cluster, **spec):
    plan = cluster({"deadline": {"finishWithin": "100h"}, **spec}).settle()
    plan.job(ready=2, startTime=START)
    return plan.settle()


def job_deadline(plan, attempt=1):
    return plan.jobs[f"demo-a{attempt}"]["spec"].get("activeDeadlineSeconds")


def waits(plan):
    return [action.after_s for action in plan.decide() if isinstance(action, Requeue)]


def test_without_an_active_deadline_a_job_has_none(fake_cluster):
    assert job_deadline(running(fake_cluster)) is None


def test_the_job_has_the_plan_s_deadline(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h")
    assert job_deadline(plan) == 4 * 3600
    assert plan.plan["status"]["startedAt"] == START


@pytest.mark.parametrize(("limit", "seconds"), [("5h", 5 * 3600), (None, None)], ids=["longer", "none"])
def test_a_changed_deadline_changes_the_running_job(fake_cluster, limit, seconds):
    plan = running(fake_cluster, activeDeadline="4h").edit(activeDeadline=limit).settle()
    assert list(plan.jobs) == ["demo-a1"]
    assert job_deadline(plan) == seconds


def test_a_new_attempt_gets_the_remaining_time(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h").later(hours=1).edit(workload={"tokens": "9M"}).settle()
    assert list(plan.jobs) == ["demo-a2"]
    assert job_deadline(plan, 2) == 3 * 3600
    plan.job(2, ready=2, startTime="2026-11-21T13:10:00Z")  # it waited ten minutes for its pods
    assert job_deadline(plan.settle(), 2) == 3 * 3600 - 600


def test_an_attempt_that_starts_too_late_gets_a_moment(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h").later(hours=5).edit(workload={"tokens": "9M"}).settle()
    assert job_deadline(plan, 2) == 2


def test_a_suspension_starts_the_clock_anew_as_a_job_s(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h").later(hours=3).edit(suspend=True).settle()
    assert "startedAt" not in plan.plan["status"]
    suspended = {"type": "Suspended", "status": "True"}
    plan.job(ready=0, conditions=[suspended])
    plan.later(hours=60).settle().edit(suspend=False).settle()
    assert "startedAt" not in plan.plan["status"], "startTime is still the one before the suspension"
    plan.job(ready=2, conditions=[{**suspended, "status": "False"}], startTime="2026-11-24T03:00:00Z")
    assert plan.settle().plan["status"]["startedAt"] == "2026-11-24T03:00:00Z"
    assert job_deadline(plan) == 4 * 3600


def test_a_plan_that_ran_too_long_fails_but_its_workers_keep_the_store_while_they_save(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h").ends("FailureTarget", **FAILED)
    plan.job(terminating=2)
    plan.settle()
    assert plan.state == "Failed"
    assert plan.condition("Failed")["reason"] == "DeadlineExceeded"
    assert "spec.activeDeadline, 4h" in plan.condition("Failed")["message"]
    assert "ReplicaSet/demo-rdzv" in plan.children
    plan.ends("Failed", **FAILED).job(terminating=0)
    assert plan.settle().children == set()


def test_a_longer_deadline_takes_a_failed_plan_on_from_its_checkpoint(fake_cluster):
    plan = running(fake_cluster, activeDeadline="4h").ends("Failed", **FAILED).settle()
    plan.later(hours=5).edit(activeDeadline="6h").settle()
    assert plan.pending == [plan.jobs["demo-a2"]]
    assert job_deadline(plan, 2) == 6 * 3600


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_finished_plan_is_deleted_once_when_its_time_is_over(fake_cluster, end):
    plan = running(fake_cluster, ttlAfterFinished="1h").ends(end).settle()
    assert waits(plan) == [3600]
    plan.later(minutes=50)
    assert waits(plan) == [600]
    plan.later(minutes=10).settle()
    deleted = [action.kind for action in plan.log if isinstance(action, Delete)]
    assert deleted.count("TrainingPlan") == 1
    assert plan.events[-1].reason == "Expired"


def test_a_plan_without_a_ttl_is_kept(fake_cluster):
    plan = running(fake_cluster).ends("Complete").settle().later(days=1000)
    assert plan.decide() == ()


def test_an_edit_after_the_end_keeps_the_plan(fake_cluster):
    plan = running(fake_cluster, ttlAfterFinished="1h").ends("Failed").settle()
    plan.edit(workload={"tokens": "9M"}).later(hours=2).settle()
    assert "deletionTimestamp" not in plan.plan["metadata"]
    assert plan.pending
