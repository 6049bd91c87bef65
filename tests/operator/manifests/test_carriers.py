"""Carriers of a Job: the manifests, how the Job in them is read back, and a plan's life in each."""

import pytest

from rightsizer_operator.values.actions import Apply, Delete, PatchJob
from rightsizer_operator.values.carriers import KINDS, job_within, remedy
from rightsizer_operator.values.snapshot import AttemptJob

OTHERS = [kind for kind in KINDS if kind != "Job"]
QUEUE = "kueue.x-k8s.io/queue-name"
TTL = "ttlSecondsAfterFinished"


def expanded(child):
    """The Job as the JobSet controller makes it: named and owned by the JobSet, labelled as its template."""
    found, name = job_within(child), child["metadata"]["name"]
    made = {
        "name": f"{name}-node-0",
        "ownerReferences": [{"kind": "JobSet", "name": name, "controller": True}],
    }
    return {
        "kind": "Job",
        "metadata": {**found["metadata"], **made},
        "spec": found["spec"] | {"suspend": child["spec"].get("suspend", False)},
    }


@pytest.fixture
def carried(fake_cluster):
    """carried(kind, ...): a plan after its first reconcile, its Job not created yet; and what was applied."""

    def make(kind, change=None):
        run = fake_cluster({"launch": {"as": str(kind)}, **(change or {})})
        run.settle()
        applied = [a.child for a in run.log if isinstance(a, Apply) and remedy(a.child["kind"])]
        return run, applied

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_s_objects_have_its_name_and_are_the_plan_s(carried, kind):
    _, applied = carried(kind)
    assert {child["metadata"]["name"] for child in applied} == {"demo-a1"}
    assert applied[-1]["kind"] == kind
    assert {child["kind"] for child in applied} <= set(KINDS[kind].objects)
    assert {child["metadata"]["ownerReferences"][0]["uid"] for child in applied} == {"uid-1"}


@pytest.mark.parametrize("kind", OTHERS)
def test_the_job_within_is_the_one_that_a_job_would_be(carried, kind):
    fixed = {"elasticity": {"mode": "Off"}}
    (_, (plain,)), (_, applied) = carried("Job", fixed), carried(kind, fixed)
    (found,) = [each for each in map(job_within, applied) if each]
    assert found["spec"] == {key: value for key, value in plain["spec"].items() if key != TTL}


@pytest.mark.parametrize("kind", OTHERS)
def test_the_expanded_job_is_read_as_the_attempt_of_its_carrier(carried, kind):
    _, applied = carried(kind)
    (child,) = [each for each in applied if job_within(each)]
    job = AttemptJob.of(expanded(child))
    assert (job.name, job.attempt, job.kind) == ("demo-a1", 1, kind)
    assert (job.job_name, job.owner_uid) == ("demo-a1-node-0", "uid-1")
    assert not job.elastic


def test_until_its_controller_acts_the_job_is_expected_and_claims_its_gpus(carried):
    _, (child,) = carried("JobSet")
    job = AttemptJob.within(child)
    assert job.expected
    assert (job.gpus, job.is_active, job.started_at) == (2, True, None)
    assert AttemptJob.within({"kind": "Service"}) is None


def test_the_carrier_queues_and_the_job_within_does_not(fake_cluster):
    run = fake_cluster({"launch": {"as": "JobSet"}})
    run.plan["metadata"]["labels"] = {QUEUE: "team"}
    (child,) = [a.child for a in run.settle().log if isinstance(a, Apply) and a.child["kind"] == "JobSet"]
    assert QUEUE in child["metadata"]["labels"]
    assert QUEUE not in child["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"]


@pytest.fixture
def living(carried):
    """living(kind): a plan whose carrier's controller has made its Job, both workers ready."""

    def make(kind):
        run, applied = carried(kind)
        (child,) = [each for each in applied if job_within(each)]
        run.jobs["demo-a1"] = expanded(child)
        run.job(ready=2, startTime="2026-11-21T12:00:00Z")
        run.log.clear()
        return run

    return make


@pytest.mark.parametrize("kind", OTHERS)
def test_a_suspension_is_the_carrier_s(living, kind):
    run = living(kind).edit(suspend=True)
    patches = [action for action in run.decide() if isinstance(action, PatchJob)]
    assert patches == [PatchJob(kind=kind, name="demo-a1", spec={"suspend": True})]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_deadline_is_the_job_s(living, kind):
    run = living(kind).edit(activeDeadline="1h")
    patches = [action for action in run.decide() if isinstance(action, PatchJob)]
    assert [(p.kind, p.name) for p in patches] == [("Job", "demo-a1-node-0")]


@pytest.mark.parametrize("kind", OTHERS)
def test_another_size_is_a_new_attempt_after_the_old_carrier_is_gone(living, kind):
    run = living(kind).edit(resources={"gpus": 3})
    actions = run.decide()
    deleted = [action.kind for action in actions if isinstance(action, Delete)]
    assert tuple(deleted) == KINDS[kind].objects
    assert not any(isinstance(action, Apply) and remedy(action.child["kind"]) for action in actions)


def test_another_carrier_is_a_new_attempt(living):
    run = living("JobSet").edit(launch={"as": "Job"})
    deletions = [action for action in run.decide() if isinstance(action, Delete)]
    assert [(action.kind, action.name) for action in deletions] == [("JobSet", "demo-a1")]


def test_remedies_are_of_carriers_only():
    assert "https://jobset.sigs.k8s.io" in remedy("JobSet")
    assert remedy("Secret") == ""


def test_a_train_job_runs_a_runtime_of_its_own_and_alone_queues(fake_cluster):
    run = fake_cluster({"launch": {"as": "TrainJob"}})
    run.plan["metadata"]["labels"] = {QUEUE: "team"}
    children = {a.child["kind"]: a.child for a in run.settle().log if isinstance(a, Apply)}
    runtime, train_job = children["TrainingRuntime"], children["TrainJob"]
    assert train_job["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "demo-a1",
    }
    assert QUEUE in train_job["metadata"]["labels"]
    assert QUEUE not in runtime["metadata"]["labels"]
    assert TTL not in runtime["spec"]["template"]["spec"]
