import datetime as dt

import pytest

from rightsizer_operator.values.actions import PatchJob, PatchWorkload, Requeue
from rightsizer_operator.values.kueue import (
    KueueWorkload,
    Queue,
    gpus_of,
    part_of,
    pending_reason,
    topology_annotations,
)
from rightsizer_operator.values.pods import Pod

LABELS = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "urgent"}
NEAR = "kueue.x-k8s.io/podset-preferred-topology"
LEVELS = ("zone", "rack", "kubernetes.io/hostname")


def cluster_queue(nominal, **spec):
    flavor = {"name": "gpus", "resources": [{"name": "nvidia.com/gpu", **nominal}]}
    return {
        "spec": {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}], **spec}
    }


def workload(*conditions, active=True, **annotations):
    rows = [dict(zip(("type", "status", "message"), row, strict=True)) for row in conditions]
    metadata = {"name": "w", "annotations": annotations}
    return {"metadata": metadata, "spec": {"active": active}, "status": {"conditions": rows}}


@pytest.fixture
def queued(fake_cluster):
    def make(spec=None, **queue):
        made = fake_cluster(spec)
        made.plan["metadata"]["labels"] = LABELS
        made.queue = Queue(name="team", **queue)
        return made

    return make


@pytest.mark.parametrize(
    ("queue", "most"),
    [
        (cluster_queue({"nominalQuota": "8"}), 8),
        (cluster_queue({"nominalQuota": 8, "borrowingLimit": 4}, cohortName="all"), 12),
        (cluster_queue({"nominalQuota": 8, "borrowingLimit": 4}), 8),
        (cluster_queue({"nominalQuota": 8}, cohortName="all"), None),
        (cluster_queue({"nominalQuota": "1k"}), None),
        ({"spec": {"resourceGroups": []}}, None),
    ],
    ids=["quota", "limited borrowing", "no cohort", "unlimited borrowing", "suffixed quantity", "no GPUs"],
)
def test_a_queue_s_limit_is_its_quota_and_its_borrowing_limit(queue, most):
    assert gpus_of(queue) == most


def groups(*each):
    """A ClusterQueue of these groups: one mapping of quotas by resource for each flavor of each."""
    return {
        "spec": {
            "resourceGroups": [
                {
                    "coveredResources": list(flavors[0]),
                    "flavors": [
                        {"name": f"f{i}", "resources": [{"name": n, "nominalQuota": q} for n, q in f.items()]}
                        for i, f in enumerate(flavors)
                    ],
                }
                for flavors in each
            ]
        }
    }


@pytest.mark.parametrize(
    ("queue", "part"),
    [
        (cluster_queue({"nominalQuota": "8"}), {}),
        (groups([{"nvidia.com/gpu": 8, "cpu": "64"}]), {"cpu": 8.0}),
        (groups([{"nvidia.com/gpu": 8, "cpu": "64"}, {"nvidia.com/gpu": 4, "cpu": "8"}]), {"cpu": 2.0}),
        (groups([{"nvidia.com/gpu": 8}], [{"cpu": "16", "memory": "8k"}]), {"cpu": 2.0, "memory": 1000.0}),
        (groups([{"nvidia.com/gpu": 8}], [{"cpu": "8"}, {"cpu": "16"}]), {"cpu": 2.0}),
        (groups([{"nvidia.com/gpu": 0, "cpu": "64"}]), {}),
    ],
    ids=["GPUs only", "together", "two flavors", "apart", "the larger flavor", "all borrowed"],
)
def test_a_queue_s_part_for_a_gpu_is_of_the_resources_that_it_covers(queue, part):
    assert part_of(queue) == part


def test_a_queue_s_own_quota_excludes_borrowed_gpus():
    queue = cluster_queue({"nominalQuota": 8, "borrowingLimit": 4}, cohortName="all")
    assert gpus_of(queue, borrows=False) == 8


def test_a_queued_job_is_created_suspended_with_kueue_s_labels_and_annotation(queued):
    job = queued().settle().job()
    assert job["spec"]["suspend"]
    assert LABELS.items() <= job["metadata"]["labels"].items()
    assert job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"


def test_a_plan_is_sized_to_its_queue_s_limit(queued):
    small = queued(gpus=1).settle()
    assert small.state == "InsufficientGPUs"
    assert "quotas leave 1" in small.condition("Sized")["message"]


def test_a_queued_plan_shows_kueue_s_message(queued):
    waits = queued().settle()
    waits.workloads = (KueueWorkload.of(workload(("QuotaReserved", "False", "1 more needed"))),)
    assert waits.settle().state == "Queued"
    assert waits.condition("Admitted")["message"] == "1 more needed"
    assert any(isinstance(action, Requeue) for action in waits.decide())


def test_a_preempted_workload_shows_its_preemptor_and_its_lack():
    raw = workload(("Preempted", "True", "by uid-2."), ("QuotaReserved", "False", "no room"))
    assert pending_reason([KueueWorkload.of(raw)]) == "by uid-2; no room"


@pytest.mark.parametrize("suspend", [True, False], ids=["suspend", "resume"])
def test_queued_jobs_are_suspended_and_resumed_through_their_workloads(queued, suspend):
    run = queued().settle()
    run.job()["spec"]["suspend"] = not suspend
    run.workloads = (KueueWorkload(name="w", active=suspend, admitted=suspend),)
    actions = run.edit(suspend=suspend).decide()
    assert PatchWorkload(name="w", active=not suspend) in actions
    assert not any(isinstance(action, PatchJob) for action in actions)


def test_growth_that_waits_for_quota_shows_kueue_s_message(queued):
    run = queued().settle()
    run.job(ready=2)["spec"]["suspend"] = False
    run.settle().edit(resources={"gpus": 3}).settle()
    run.workloads = (
        KueueWorkload(name="w", admitted=True),
        KueueWorkload(name="w2", replaces=True, pending_reason="1 more needed"),
    )
    assert run.settle().condition("Resizing")["message"] == "2 of 3 workers ready; 1 more needed"


@pytest.mark.parametrize(
    ("levels", "pods", "annotations"),
    [
        (LEVELS, 4, {NEAR: "rack"}),
        (LEVELS, 1, {}),
        (("kubernetes.io/hostname",), 4, {}),
        ((), 4, {}),
    ],
    ids=["near", "one pod", "nodes only", "no topology"],
)
def test_workers_get_a_preferred_topology_annotation(levels, pods, annotations):
    assert topology_annotations(Queue(name="team", levels=levels), pods=pods) == annotations


def test_a_plan_in_a_queue_with_a_topology_is_not_elastic(queued):
    near = queued(levels=LEVELS).settle()
    job = near.job()
    assert "kueue.x-k8s.io/elastic-job" not in job["metadata"]["annotations"]
    assert job["spec"]["template"]["metadata"]["annotations"] == {NEAR: "rack"}


def test_a_queue_label_without_kueue_creates_a_plain_job(fake_cluster):
    plain = fake_cluster()
    plain.plan["metadata"]["labels"] = LABELS
    assert "suspend" not in plain.settle().job()["spec"]


@pytest.fixture
def missed_pod(queued):
    """missed_pod(...): a queued run whose Workload is admitted, with one pod still gated."""

    def make(*, admitted="True", age_s=30, gated=True):
        run = queued().settle()
        run.job()["spec"]["suspend"] = False
        run.workloads = (KueueWorkload.of(workload(("Admitted", admitted, ""))),)
        created = run.now - dt.timedelta(seconds=age_s)
        run.pods = (Pod(name="demo-a1-1", attempt=1, gated=gated, created=created),)
        return run

    return make


def nudges(run):
    return [
        action.annotations for action in run.decide() if isinstance(action, PatchJob) and action.annotations
    ]


def test_a_job_with_a_pod_that_kueue_missed_is_nudged_periodically(missed_pod):
    run = missed_pod()
    assert nudges(run) == [{"rightsizer.dev/nudged": "2026-11-21T12:00:00Z"}]
    run.settle()
    assert not nudges(run)
    run.now += dt.timedelta(seconds=10)
    assert nudges(run)


@pytest.mark.parametrize(
    "case",
    [{"admitted": "False"}, {"age_s": 3}, {"gated": False}],
    ids=["not admitted", "just created", "only slow to start"],
)
def test_a_job_is_not_nudged_for_pods_that_kueue_has_not_missed(missed_pod, case):
    assert not nudges(missed_pod(**case))
