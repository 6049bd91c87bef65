"""Events of plans: told in order beside the work, which never waits for them."""

import asyncio
import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from rightsizer_api.plan import API_VERSION, KIND
from rightsizer_api.quantities import format_time
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.cluster.metrics import Metrics
from rightsizer_operator.values.actions import EmitEvent
from rightsizer_operator.values.names import FIELD_MANAGER

__all__ = ["EventRecorder", "event"]

_LOG = logging.getLogger("rightsizer.operator")
_MOST = 1000  # that wait; what comes on top is dropped and counted
_TRIES, _FIRST_WAIT_S, _LAST_WAIT_S = 8, 0.2, 30.0
_LONGEST = 1000  # characters of a message: the API takes 1,024
_PASSING = (0, 429, 500, 502, 503, 504)  # refusals that may be over at the next try
_TOLD = (403, 404, 409)  # a namespace on its way out takes none; told already


def event(plan: Mapping[str, Any], told: EmitEvent, now: dt.datetime) -> dict[str, Any]:
    """An Event of a plan. Its name follows from what it says of which version: twice is once."""
    metadata, when = plan["metadata"], format_time(now)
    seed = f"{metadata['uid']}/{metadata['resourceVersion']}/{told.reason}/{told.message}"
    name = f"{metadata['name']}.{hashlib.sha256(seed.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "reason": told.reason,
        "message": told.message[:_LONGEST],
        "type": "Warning" if told.warning else "Normal",
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
    }


class EventRecorder:
    """A bounded queue of Events and the one task that writes them. What is dropped is counted, and logged."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._kube, self._metrics = kube, metrics
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST)

    def tell(self, plan: Mapping[str, Any], told: EmitEvent) -> None:
        """Have it written soon."""
        one = event(plan, told, dt.datetime.now(dt.UTC))
        try:
            self._queue.put_nowait(one)
        except asyncio.QueueFull:
            self._drop(one, "too many wait")

    async def work(self) -> None:
        """Write what is told, until cancelled."""
        while True:
            one = await self._queue.get()
            try:
                await self._write(one)
            finally:
                self._queue.task_done()

    async def told(self) -> None:
        """Wait until all that was told is written, or dropped."""
        await self._queue.join()

    async def _write(self, one: dict[str, Any]) -> None:
        for tried in range(_TRIES):
            try:
                await self._kube.emit(one)
                return
            except ApiError as error:
                if error.status in _TOLD:
                    return
                if error.status not in _PASSING or tried == _TRIES - 1:
                    self._drop(one, str(error))
                    return
                wait_s = min(_LAST_WAIT_S, _FIRST_WAIT_S * 2**tried)
                await asyncio.sleep(max(wait_s, error.retry_after_s or 0.0))

    def _drop(self, one: Mapping[str, Any], why: str) -> None:
        self._metrics.untold.inc()
        about = one["involvedObject"]
        words = (about["namespace"], about["name"], one["reason"], why)
        _LOG.warning("%s/%s: its event %s is dropped: %s", *words)
