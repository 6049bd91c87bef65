"""Users' actions on plans; later tests continue with the plan that earlier ones left."""

import logging
import time

import pytest
from planrun import PACED_EXAMPLE

pytestmark = pytest.mark.kubernetes
LOG = logging.getLogger(__name__)
AWAY_S = 30


def test_a_plan_trains_on_different_nodes_of_a_restricted_namespace_and_completes(start, cluster, namespace):
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    run = start(workload={"tokens": "40k"}, launch={"command": [str(PACED_EXAMPLE)]})
    run.until("Running")
    assert len({pod["spec"]["nodeName"] for pod in run.pods()}) == 2
    name = min(pod["metadata"]["name"] for pod in run.pods())
    assert run.kubectl("exec", name, "--", "id", "-u").strip() == "65532"
    run.until("Complete", within_s=300)
    assert run.condition("Complete")["status"] == "True"
    cluster.wait("no store is left", lambda: not run.pods("rendezvous"))
    assert "violates PodSecurity" not in run.kubectl("get", "events")


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


def test_an_impossible_plan_is_reported_within_a_second(start):
    began = time.monotonic()
    run = start(resources={"gpuTypes": ["H1000"], "gpusPerNode": 1})
    run.cluster.wait("an answer", lambda: run.state == "Invalid", within_s=10)
    took_s = time.monotonic() - began
    created = run.cluster.api.get("tp", run.name, namespace=run.namespace)["metadata"]["creationTimestamp"]
    answered = run.condition("Accepted")["lastTransitionTime"]
    assert answered <= created[:-3] + f"{int(created[-3:-1]) + 1:02}Z" or took_s < 2
    assert "H1000" in run.condition("Accepted")["message"]


def test_a_script_that_fails_for_good_fails_the_plan_in_its_own_words(start):
    launch = {"command": ["-m", "no_such_module"], "restarts": {"limit": 1, "within": "10m"}}
    run = start(launch=launch, resources={"gpus": 1})
    run.until("Failed", within_s=240)
    assert "failures within" in run.condition("Failed")["message"]


def test_suspend_saves_and_resume_continues(shared_run):
    step, *_ = shared_run.steps_with(2)
    shared_run.patch(suspend=True)
    shared_run.until("Suspended")
    shared_run.cluster.wait("no worker is left", lambda: not shared_run.pods())
    began = time.time()
    shared_run.patch(suspend=False)
    shared_run.steps_with(2, after=began)
    assert shared_run.started(after=began)["step"] >= step


def test_a_change_of_the_workers_arguments_is_a_new_attempt_that_resumes(shared_run):
    step, *_ = shared_run.steps_with(2)
    began = time.time()
    shared_run.patch(workload={"tokens": "90M"})
    shared_run.cluster.wait("attempt 2", lambda: shared_run.jobs == [f"{shared_run.name}-a2"], within_s=120)
    shared_run.steps_with(2, after=began)
    assert shared_run.started()["step"] >= step
    assert shared_run.status["attempt"]["number"] == 2


def test_training_continues_while_the_api_server_is_down(shared_run, cluster):
    shared_run.steps_with(2)
    jobs, names = shared_run.jobs, {pod["metadata"]["name"] for pod in shared_run.pods()}
    cluster.control("kill", "apiserver")
    away = time.time()
    time.sleep(AWAY_S)
    cluster.control("start", "apiserver")
    cluster.wait("the API server", lambda: len(cluster.ready_nodes()) == 3)
    back = time.time()
    shared_run.kubectl("scale", "tp", shared_run.name, "--replicas=3")
    cluster.wait("the scale is seen", lambda: shared_run.status["attempt"]["gpus"] == 3)
    LOG.info(f"acted on a change {time.time() - back:.1f} s after the API server was back")
    shared_run.steps_with(3, after=back)
    meanwhile = [r for r, _ in shared_run.records() if away < r["time"] < away + AWAY_S]
    assert {r["event"] for r in meanwhile} <= {"step", "checkpoint"}
    assert meanwhile[-1]["time"] > away + AWAY_S - 20
    assert names < {pod["metadata"]["name"] for pod in shared_run.pods()}
    assert shared_run.jobs == jobs


def test_scaling_changes_the_world_in_place(shared_run):
    jobs = shared_run.jobs
    for workers in (1, 2):
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
