"""What users do with plans; the later tests go on with one plan, each with what the one before it left."""

import logging
import time

import pytest
from planrun import PACED_EXAMPLE

pytestmark = pytest.mark.kubernetes
LOG = logging.getLogger(__name__)


def test_a_plan_trains_on_different_nodes_and_completes(start):
    run = start(workload={"tokens": "40k"}, launch={"command": [str(PACED_EXAMPLE)]})
    run.until("Running")
    assert len({pod["spec"]["nodeName"] for pod in run.pods()}) == 2
    run.until("Complete", within_s=300)
    assert run.condition("Complete")["status"] == "True"
    run.cluster.wait("no store is left", lambda: not run.pods("rendezvous"))


@pytest.mark.nightly
def test_a_training_that_ends_while_a_pod_is_away_is_complete(start, cluster):
    """The Job waits for its first index, whose pod finds nothing left to train."""
    run = start(workload={"tokens": "90k"})
    run.steps_with(2)
    nodes = sorted(cluster.ready_nodes())
    cluster.kubectl("cordon", *nodes)  # what comes in its place waits
    try:
        first = f"rightsizer.dev/plan={run.name},batch.kubernetes.io/job-completion-index=0"
        run.kubectl("delete", "pod", f"--selector={first}", "--grace-period=0", "--force")
        run.until("Finishing")
    finally:
        cluster.kubectl("uncordon", *nodes)
    run.until("Complete")
    assert run.status["attempt"]["number"] == 1


def test_a_plan_that_cannot_be_says_so_within_a_second(start):
    began = time.monotonic()
    run = start(resources={"gpuTypes": ["H1000"], "gpusPerNode": 1})
    run.cluster.wait("an answer", lambda: run.state == "Invalid", within_s=10)
    took_s = time.monotonic() - began
    created = run.cluster.api.get("tp", run.name, namespace=run.namespace)["metadata"]["creationTimestamp"]
    answered = run.condition("Accepted")["lastTransitionTime"]
    assert answered <= created[:-3] + f"{int(created[-3:-1]) + 1:02}Z" or took_s < 2
    assert "H1000" in run.condition("Accepted")["message"]


def test_a_script_that_fails_for_good_fails_the_plan_in_its_own_words(start):
    run = start(launch={"command": ["-m", "no_such_module"], "restarts": {"limit": 1, "within": "10m"}})
    run.until("Failed", within_s=240)
    assert "failures within" in run.condition("Failed")["message"]


def test_suspend_saves_and_resume_goes_on(shared_run):
    step, *_ = shared_run.steps_with(2)
    shared_run.patch(suspend=True)
    shared_run.until("Suspended")
    shared_run.cluster.wait("no worker is left", lambda: not shared_run.pods())
    began = time.time()
    shared_run.patch(suspend=False)
    shared_run.steps_with(2, after=began)
    assert shared_run.started(after=began)["step"] >= step


def test_a_change_that_workers_must_be_told_is_a_new_attempt_that_goes_on(shared_run):
    step, *_ = shared_run.steps_with(2)
    began = time.time()
    shared_run.patch(workload={"tokens": "90M"})
    shared_run.cluster.wait("attempt 2", lambda: shared_run.jobs == [f"{shared_run.name}-a2"], within_s=120)
    shared_run.steps_with(2, after=began)
    assert shared_run.started()["step"] >= step
    assert shared_run.status["attempt"]["number"] == 2


def test_scaling_changes_the_world_in_place(shared_run):
    shared_run.steps_with(2)
    jobs = shared_run.jobs
    for workers in (3, 1):
        began = time.time()
        shared_run.kubectl("scale", "tp", shared_run.name, f"--replicas={workers}")
        step, _, when = shared_run.steps_with(workers, after=began)
        assert step > 1
        LOG.info(f"a step of {workers} workers after {when - began:.1f} s")
    assert shared_run.jobs == jobs


def test_a_deleted_plan_takes_everything_but_its_checkpoints(shared_run):
    assert shared_run.last()[0] > 1
    shared_run.kubectl("delete", "tp", shared_run.name, "--timeout=10s")

    def left():
        return shared_run.kubectl("get", "jobs,pods,services,replicasets", "--output=name").split()

    shared_run.cluster.wait("nothing is left", lambda: not left(), within_s=120)
    assert shared_run.kubectl("get", "pvc", "--output=name")
