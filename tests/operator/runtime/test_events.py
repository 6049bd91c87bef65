import asyncio
import datetime as dt

import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.runtime.events import EventRecorder, event
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.actions import EmitEvent

PLAN = {"metadata": {"name": "demo", "namespace": "team", "uid": "u1", "resourceVersion": "7"}}
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


class FakeKubeClient:
    """Accepts Events after failing with the given statuses."""

    def __init__(self, *failures):
        self.failures, self.events = list(failures), []

    async def create_event(self, one):
        if self.failures:
            raise ApiError(self.failures.pop(0), "no", retry_after_s=0.01)
        self.events.append(one["reason"])


def dropped(kube, *reasons):
    """The dropped Events after recording one for each reason."""

    async def record():
        metrics = Metrics()
        recorder = EventRecorder(kube, metrics)
        for reason in reasons:
            recorder.record(PLAN, EmitEvent(reason=reason, message=reason))
        task = asyncio.create_task(recorder.run())
        await recorder.flush()
        task.cancel()
        return metrics.registry.get_sample_value("rightsizer_operator_events_dropped_total")

    return asyncio.run(asyncio.wait_for(record(), 10))


def test_events_are_written_in_order():
    kube = FakeKubeClient()
    assert dropped(kube, "Sized", "Running") == 0
    assert kube.events == ["Sized", "Running"]


@pytest.mark.parametrize("status", [0, 429, 503], ids=str)
def test_transient_errors_are_retried(status):
    kube = FakeKubeClient(status)
    assert dropped(kube, "Sized") == 0
    assert kube.events == ["Sized"]


@pytest.mark.parametrize(("status", "count"), [(422, 1), (404, 0), (409, 0)], ids=str)
def test_rejected_events_are_counted_unless_they_exist_or_their_namespace_is_deleted(status, count):
    kube = FakeKubeClient(status)
    assert dropped(kube, "Sized", "Running") == count
    assert kube.events == ["Running"]


def test_events_beyond_the_queue_s_capacity_are_counted():
    assert dropped(FakeKubeClient(), *(f"r{i}" for i in range(1003))) == 3


def test_the_same_event_of_the_same_plan_version_has_the_same_name():
    emit = EmitEvent(reason="Sized", message="2 GPUs")
    once, later = event(PLAN, emit, NOW), event(PLAN, emit, NOW + dt.timedelta(seconds=9))
    assert once["metadata"]["name"] == later["metadata"]["name"]
    assert (
        once["metadata"]["name"]
        != event(PLAN, EmitEvent(reason="Sized", message="3"), NOW)["metadata"]["name"]
    )
