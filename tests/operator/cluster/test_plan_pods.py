"""Pods and Events are read for plans that need them only."""

import asyncio
import datetime as dt

import pytest

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import KubeClient
from rightsizer_operator.cluster.plan_pods import PlanPods
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import AttemptJob, Rendezvous

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
KEY = ("team", "demo")
PODS, EVENTS = "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/events"


def job(started_s=10, **more):
    return AttemptJob(
        started_at=NOW - dt.timedelta(seconds=started_s),
        name="demo-a1",
        plan="demo",
        namespace="team",
        attempt=1,
        uid="j1",
        owner_uid="p1",
        parallelism=2,
        **more,
    )


@pytest.fixture
def reader(fake_api):
    """reader(job): the plan's pods, and the reader, in a namespace with a pod of its Job and another's."""

    def make(job, *, can_meet=True):
        cache = Cache()
        metadata = {"namespace": "team", "name": "demo", "uid": "p1", "resourceVersion": "1"}
        cache.set_plan({"metadata": metadata})
        cache.reserve(KEY, job)
        owner = frozenset({"p1"})
        cache.set_rendezvous(KEY, Rendezvous(name="demo-rdzv", owner_uids=owner, ready=can_meet, version=1))
        for name, owner in (("own", "j1"), ("other", "j2")):
            labels = {"rightsizer.dev/plan": "demo"}
            owners = [{"uid": owner, "kind": "Job", "name": "x"}]
            fake_api.put(f"{PODS}/{name}", {"metadata": {"labels": labels, "ownerReferences": owners}})
        return PlanPods(KubeClient(fake_api, Metrics()), cache, now=lambda: NOW)

    return make


READS = {
    "starting": (job(), {}, True),
    "starts just now": (job(started_s=1), {}, False),
    "trains": (job(ready=2), {"Ready": "Running"}, False),
    "lost a worker": (job(ready=1), {"Ready": "Running"}, True),
    "failed before": (job(ready=2, failed=1), {"Ready": "Running"}, True),
    "has just completed": (job(finished="Complete"), {"Ready": "Running"}, True),
    "is complete": (job(finished="Complete"), {"Ready": "Complete"}, False),
    "has failed": (job(finished="Failed"), {"Ready": "Failed"}, False),
    "suspended": (job(suspended=True), {"Ready": "Suspended"}, False),
}


@pytest.mark.parametrize(("job", "reasons", "read"), READS.values(), ids=READS)
def test_pods_are_read_if_they_add_to_the_job(reader, job, reasons, read):
    conditions = [{"type": kind, "status": "True", "reason": reason} for kind, reason in reasons.items()]
    plan = {"metadata": {}, "status": {"conditions": conditions}}
    pods = asyncio.run(reader(job).unhealthy(KEY, plan))
    assert [pod.name for pod in pods] == (["own"] if read else [])


def test_pods_are_read_while_workers_cannot_meet(reader):
    plan = {"metadata": {}, "status": {}}
    pods = asyncio.run(reader(job(ready=2), can_meet=False).unhealthy(KEY, plan))
    assert [pod.name for pod in pods] == ["own"]


def event(fake_api, name, message, when):
    fake_api.put(
        f"{EVENTS}/{name}",
        {
            "metadata": {"creationTimestamp": when},
            "involvedObject": {"kind": "Job", "name": "demo-a1", "uid": "j1"},
            "lastTimestamp": when,
            "reason": "FailedCreate",
            "message": message,
        },
    )


def test_the_newest_warning_about_a_job_without_pods_is_read_printable(reader, fake_api):
    made = reader(job())
    event(fake_api, "a", "old", "2026-11-21T12:00:00Z")
    event(fake_api, "b", "exceeded quota\x1b[2J", "2026-11-21T12:01:00Z")
    found = asyncio.run(made.warnings(KEY, ()))
    assert ("Job", "FailedCreate", "exceeded quota?[2J") in [(w.kind, w.reason, w.message) for w in found]
    selectors = [query["fieldSelector"] for method, path, query in fake_api.requests if path == EVENTS]
    assert selectors[0] == (
        "type=Warning,involvedObject.kind=Job,involvedObject.name=demo-a1,involvedObject.uid=j1"
    )


def test_a_pod_with_its_own_reason_costs_no_list_of_events(reader, fake_api):
    made = reader(job())
    assert asyncio.run(made.warnings(KEY, (Pod(name="w0", attempt=1, waiting="ErrImagePull"),))) == ()
    assert not [path for _, path, _ in fake_api.requests if path == EVENTS]


def test_an_operator_without_the_right_to_events_works_without_them(reader, fake_api):
    made = reader(job())
    fake_api.refuse["GET", EVENTS] = [(403, b"{}"), (403, b"{}")]
    assert asyncio.run(made.warnings(KEY, ())) == ()
