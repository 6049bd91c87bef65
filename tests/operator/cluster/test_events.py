import asyncio
import datetime as dt

import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.events import EventRecorder, event
from rightsizer_operator.cluster.metrics import Metrics
from rightsizer_operator.values.actions import EmitEvent

PLAN = {"metadata": {"name": "demo", "namespace": "team", "uid": "u1", "resourceVersion": "7"}}
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


class KubeClient:
    """Takes events, after refusing as told."""

    def __init__(self, *refusals):
        self.refusals, self.events = list(refusals), []

    async def emit(self, one):
        if self.refusals:
            raise ApiError(self.refusals.pop(0), "no", retry_after_s=0.01)
        self.events.append(one["reason"])


def told(kube, *reasons):
    """What is counted as dropped after all this was told."""

    async def tell():
        metrics = Metrics()
        teller = EventRecorder(kube, metrics)
        for reason in reasons:
            teller.tell(PLAN, EmitEvent(reason=reason, message=reason))
        work = asyncio.create_task(teller.work())
        await teller.told()
        work.cancel()
        return metrics.registry.get_sample_value("rightsizer_operator_events_dropped_total")

    return asyncio.run(asyncio.wait_for(tell(), 10))


def test_events_are_written_in_order():
    kube = KubeClient()
    assert told(kube, "Sized", "Running") == 0
    assert kube.events == ["Sized", "Running"]


@pytest.mark.parametrize("status", [0, 429, 503], ids=str)
def test_what_may_pass_is_tried_again(status):
    kube = KubeClient(status)
    assert told(kube, "Sized") == 0
    assert kube.events == ["Sized"]


@pytest.mark.parametrize(("status", "dropped"), [(422, 1), (404, 0), (409, 0)], ids=str)
def test_what_is_refused_is_counted_unless_it_is_known_or_its_namespace_gone(status, dropped):
    kube = KubeClient(status)
    assert told(kube, "Sized", "Running") == dropped
    assert kube.events == ["Running"]


def test_what_is_too_much_is_counted():
    assert told(KubeClient(), *(f"r{i}" for i in range(1003))) == 3


def test_the_same_word_about_the_same_version_has_one_name():
    word = EmitEvent(reason="Sized", message="2 GPUs")
    once, later = event(PLAN, word, NOW), event(PLAN, word, NOW + dt.timedelta(seconds=9))
    assert once["metadata"]["name"] == later["metadata"]["name"]
    assert (
        once["metadata"]["name"]
        != event(PLAN, EmitEvent(reason="Sized", message="3"), NOW)["metadata"]["name"]
    )
