"""The length of runs and the retention of plans: the Job controller's clock and the operator's."""

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]


def test_a_plan_at_its_active_deadline_saves_fails_and_resumes_when_it_is_raised(start):
    run = start(activeDeadline="100h")
    run.steps_with(2)
    run.patch(activeDeadline="30s")
    run.until("Failed")
    assert run.condition("Failed")["reason"] == "DeadlineExceeded"
    assert run.condition("Stalled")["status"] == "True"
    run.cluster.wait("no store is left", lambda: not run.pods("rendezvous"))
    run.patch(activeDeadline="100h")
    run.cluster.wait("attempt 2", lambda: run.jobs[-1:] == [f"{run.name}-a2"])
    run.cluster.wait("it trains", lambda: run.started() is not None, within_s=120)
    assert run.started()["step"] > 0  # from the checkpoint that was saved at the deadline


def test_a_finished_plan_is_deleted_with_its_children(start):
    run = start(workload={"tokens": "40k"}, ttlAfterFinished="10s")

    def left():
        return run.kubectl("get", "tp,jobs,pods,services,replicasets", "--output=name").split()

    run.until("Complete", within_s=300)
    run.cluster.wait("nothing is left", lambda: not left(), within_s=120)
    run.cluster.wait("its event", lambda: "spec.ttlAfterFinished" in run.kubectl("get", "events"))
    assert run.kubectl("get", "pvc", "--output=name")
