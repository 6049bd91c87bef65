"""A plan in each kind of object that carries a Job; each test goes on from the one before."""

import time

import pytest
from planrun import IDLE, Run

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]

NEEDS = {"JobSet": ("jobset",), "TrainJob": ("jobset", "trainer")}
EVERYTHING = "jobs,pods,services,replicasets,networkpolicies,secrets"


@pytest.fixture(scope="module", params=["JobSet", pytest.param("TrainJob", marks=pytest.mark.nightly)])
def kind(request):
    """The carrier."""
    return request.param


@pytest.fixture(scope="module")
def controllers(cluster, operator, kind):
    """The controllers of the kind, for its tests alone: their webhooks delay others when a node is killed."""
    for name in NEEDS[kind]:
        cluster.control("install", name)
    yield
    for name in reversed(NEEDS[kind]):
        cluster.control("uninstall", name)


@pytest.fixture(scope="module")
def run(cluster, api, controllers, common, kind):
    """A plan that trains."""
    made = Run(cluster, api, common, launch={"as": kind}).start()
    made.steps_with(2)
    yield made
    made.kubectl("delete", "tp", made.name, "--ignore-not-found")


def test_without_its_controller_the_plan_names_the_missing_one(start, kind):
    refused = start(launch=IDLE | {"as": kind}).until("Refused")
    assert "; install JobSet" in refused.condition("Admitted")["message"]
    refused.patch(launch={"as": "Job"})
    refused.cluster.wait("the Job instead", lambda: refused.jobs == [f"{refused.name}-a2"])


def test_the_plan_owns_the_carrier_and_trains(run, kind):
    (carrier,) = run.cluster.api.get(kind, namespace=run.namespace)["items"]
    assert carrier["metadata"]["name"] == run.status["attempt"]["jobName"] == f"{run.name}-a1"
    assert [owner["kind"] for owner in carrier["metadata"]["ownerReferences"]] == ["TrainingPlan"]
    assert run.jobs == [f"{run.name}-a1-node-0"]
    run.until("Running")


@pytest.mark.nightly
def test_a_suspended_plan_holds_no_pod_and_resumes(run):
    run.patch(suspend=True)
    run.until("Suspended")
    run.cluster.wait("no worker is left", lambda: not run.pods())
    began = time.time()
    run.patch(suspend=False)
    run.steps_with(2, after=began)


@pytest.mark.nightly
def test_a_killed_worker_returns_and_training_continues(run):
    run.steps_with(2)
    began, (pod, *_) = time.time(), run.pods()
    run.kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    run.cluster.wait("a new start", lambda: run.started(after=began), within_s=180)
    again = run.started(after=began)
    assert again["step"] > 0  # the suspension before has left a checkpoint
    run.steps_with(2, after=again["time"])
    assert run.status["attempt"]["number"] == 1


def test_another_size_is_a_new_attempt_that_resumes(run, kind):
    step, *_ = run.steps_with(2)
    began = time.time()
    run.kubectl("scale", "tp", run.name, "--replicas=1")
    run.steps_with(1, after=began)
    assert run.started(after=began)["step"] >= step
    names = [each["metadata"]["name"] for each in run.cluster.api.get(kind, namespace=run.namespace)["items"]]
    assert names == [f"{run.name}-a2"]


@pytest.mark.nightly
def test_a_script_that_fails_for_good_fails_the_plan(controllers, start, kind):
    launch = {"as": kind, "command": ["-m", "no_such_module"], "restarts": {"limit": 0}}
    failed = start(metadata={"name": "broken"}, launch=launch).until("Failed", within_s=240)
    assert "no_such_module" in failed.condition("Failed")["message"]


def test_a_deleted_plan_takes_everything_but_its_checkpoints(run, kind):
    run.kubectl("delete", "tp", run.name, "--timeout=30s")

    def left():
        names = run.kubectl("get", f"{EVERYTHING},{kind}", "--output=name").split()
        return [name for name in names if run.name in name]

    run.cluster.wait("nothing is left", lambda: not left(), within_s=120)
    assert run.kubectl("get", "pvc", "--output=name")
