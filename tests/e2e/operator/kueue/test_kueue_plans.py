"""Plans in a queue of the real Kueue: they wait, are preempted, grow and shrink through it, and lie near."""

import logging
import time

import pytest
from planrun import IDLE

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)

ONE = {"gpus": 1, "maxGPUs": 1}


@pytest.mark.nightly
def test_a_job_waits_suspended_until_the_quota_is_free(cluster, namespace, queue, other, holds):
    """Without the operator: what the test cluster has is the real Kueue."""
    queue(8)
    other("first", 8)
    holds("first")
    other("second", 8)
    workloads = lambda: cluster.api.get("workloads.kueue.x-k8s.io", namespace=namespace)["items"]
    cluster.wait("the second Job's Workload", lambda: len(workloads()) == 2)
    assert cluster.api.get("job", "second", namespace=namespace)["spec"]["suspend"]
    cluster.kubectl("delete", "job", "first", "--namespace", namespace)
    holds("second")


def test_a_plan_waits_for_quota_with_its_reason_and_trains_when_it_is_free(queue, queued):
    queue(1)
    first = queued("first", resources=ONE)
    step, *_ = first.steps_with(1)
    second = queued("second", resources=ONE, launch=IDLE)
    second.until("Queued", within_s=120)
    second.cluster.wait(
        "the reason", lambda: "insufficient" in second.condition("Admitted")["message"], within_s=120
    )
    assert second.condition("Admitted")["status"] == "False"
    assert second.cluster.api.get("job", "second-a1", namespace=second.namespace)["spec"]["suspend"]
    first.patch(suspend=True)  # Kueue takes the quota back
    first.until("Suspended")
    second.until("Running")
    second.kubectl("delete", "tp", "second", "--wait=false")
    began = time.time()
    first.patch(suspend=False)
    first.steps_with(1, after=began)
    assert first.started(after=began)["step"] >= step


def _requests(run):
    """CPU and memory that the workers request."""
    (job,) = run.jobs
    spec = run.cluster.api.get("job", job, namespace=run.namespace)["spec"]["template"]["spec"]
    return spec["containers"][0]["resources"].get("requests", {})


def test_workers_request_only_the_resources_that_their_queue_covers(queue, queued):
    queue(8, more={"cpu": "400m"})
    run = queued("covered", resources=ONE, launch=IDLE)
    run.until("Running")
    assert _requests(run) == {"cpu": "50m"}  # the queue's part for one of its eight GPUs
    memory = {"name": "trainer", "resources": {"requests": {"memory": "1Gi"}}}
    stated = IDLE | {"podTemplate": {"spec": {"containers": [memory]}}}
    refused = queued("uncovered", resources=ONE, launch=stated)
    refused.until("Queued", within_s=120)
    told = lambda: "memory unavailable in ClusterQueue" in refused.condition("Admitted")["message"]
    refused.cluster.wait("Kueue's reason", told, within_s=120)


@pytest.mark.nightly
def test_a_preempted_plan_resumes_from_its_checkpoint(queue, queued, priorities):
    queue(2)
    low = queued("low", priority="low")
    step, *_ = low.steps_with(2)
    urgent = queued("urgent", priority="urgent", workload={"tokens": "60k"})
    low.until("Queued", within_s=120)
    low.cluster.wait("the reason", lambda: "reempt" in low.condition("Admitted")["message"], within_s=120)
    began = time.time()
    urgent.until("Complete")
    low.steps_with(2, after=began)
    resumed = low.started(after=began)["step"]
    LOG.info(f"preempted at step {step} or later, went on at step {resumed}")
    assert resumed >= step
    assert low.jobs.count("low-a1") == 1
    assert low.status["attempt"]["number"] == 1


@pytest.mark.nightly
def test_growth_waits_for_quota_while_the_workers_train_on(queue, queued, other, holds):
    queue(3)
    other("holder", 1)
    holds("holder")
    run = queued()
    run.steps_with(2)
    run.kubectl("scale", "tp", run.name, "--replicas=3")
    run.cluster.wait(
        "the reason", lambda: "insufficient" in run.condition("Resizing")["message"], within_s=120
    )
    run.steps_with(2, after=time.time())
    began = time.time()
    run.kubectl("delete", "job", "holder")
    step, _, when = run.steps_with(3, after=began)
    LOG.info(f"a step of 3 workers {when - began:.1f} s after the quota was free")
    began = time.time()
    run.kubectl("scale", "tp", run.name, "--replicas=1")
    shrunk, _, when = run.steps_with(1, after=began)
    LOG.info(f"a step of 1 worker {when - began:.1f} s after it was asked for")
    assert (shrunk > step, run.jobs) == (True, [f"{run.name}-a1"])


def test_workers_that_stay_are_placed_in_one_rack(queue, queued):
    queue(24, racks={"n1": "a", "n2": "b", "n3": "b"})
    run = queued(
        launch=IDLE | {"framework": "deepspeed"},
        resources={"gpusPerNode": 8, "gpus": 16, "maxGPUs": 16},
        workload={"globalBatchSequences": 32},
        layout={"microBatch": 1},
    )
    run.cluster.wait("two workers on nodes", lambda: len(_nodes(run)) == 2, within_s=120)
    assert set(_nodes(run)) == {"n2", "n3"}
    assert _near(run) == "rightsizer.test/rack"


@pytest.mark.nightly
def test_workers_that_come_and_go_are_placed_in_one_rack_too(queue, queued):
    """Pods that run cannot move, so another size is another attempt there, placed as a whole."""
    racks = {"n1": "a", "n2": "b", "n3": "b"}
    queue(24, racks=racks)
    run = queued(launch=IDLE)
    for attempt, workers in enumerate((2, 3), start=1):
        run.kubectl("scale", "tp", run.name, f"--replicas={workers}")
        run.cluster.wait("its attempt", lambda: run.jobs == [f"{run.name}-a{attempt}"])  # noqa: B023
        run.cluster.wait("workers on nodes", lambda: len(_nodes(run)) == workers)  # noqa: B023
        assert len({racks[node] for node in _nodes(run)}) == 1
        assert _near(run) == "rightsizer.test/rack"


def _nodes(run):
    return [pod["spec"]["nodeName"] for pod in run.pods() if "nodeName" in pod["spec"]]


def _near(run):
    template = run.cluster.api.get("job", run.jobs[0], namespace=run.namespace)["spec"]["template"]
    return template["metadata"]["annotations"]["kueue.x-k8s.io/podset-preferred-topology"]
