"""Events of plans, written in order by a task of their own, so that reconciles do not wait for them."""

import asyncio
import datetime as dt
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from rightsizer_api.plan import API_VERSION, KIND
from rightsizer_api.quantities import format_time
from rightsizer_operator.cluster.backoff import Backoff
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.actions import EmitEvent
from rightsizer_operator.values.metadata import log_fields, subject_of, version_of
from rightsizer_operator.values.names import FIELD_MANAGER

_LOG = logging.getLogger("rightsizer.operator")
_MAX_QUEUED = 1000  # further Events are dropped and counted
_MAX_TRIES, _BACKOFF = 8, Backoff(first_s=0.2, longest_s=30.0)
_MAX_MESSAGE = 1000  # characters; the API accepts 1,024
_TRANSIENT = (0, 429, 500, 502, 503, 504)
_IGNORED = (403, 404, 409)  # the namespace is terminating; the Event exists


def event(plan: Mapping[str, Any], emit: EmitEvent, now: dt.datetime) -> dict[str, Any]:
    """An Event of a plan. Its name is a hash of its content and the plan's version, which deduplicates it."""
    metadata, when = plan["metadata"], format_time(now)
    version = str(version_of(plan))
    seed = f"{metadata['uid']}/{version}/{emit.reason}/{emit.message}"
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
            "resourceVersion": version,
        },
        "reason": emit.reason,
        "message": emit.message[:_MAX_MESSAGE],
        "type": "Warning" if emit.warning else "Normal",
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
    }


class EventRecorder:
    """A bounded queue of Events and the task that writes them. Dropped Events are counted and logged."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._kube, self._metrics = kube, metrics
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MAX_QUEUED)

    def record(self, plan: Mapping[str, Any], emit: EmitEvent) -> None:
        """Queue an Event."""
        queued = event(plan, emit, dt.datetime.now(dt.UTC))
        try:
            self._queue.put_nowait(queued)
        except asyncio.QueueFull:
            self._drop(queued, "the queue is full")

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            queued = await self._queue.get()
            try:
                await self._write(queued)
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Wait until all queued Events are written or dropped."""
        await self._queue.join()

    async def _write(self, queued: dict[str, Any]) -> None:
        for tries in range(1, _MAX_TRIES + 1):
            try:
                await self._kube.create_event(queued)
                return
            except ApiError as error:
                if error.status in _IGNORED:
                    return
                if error.status not in _TRANSIENT or tries == _MAX_TRIES:
                    self._drop(queued, str(error))
                    return
                await asyncio.sleep(_BACKOFF.wait_s(tries, at_least_s=error.retry_after_s))

    def _drop(self, queued: Mapping[str, Any], why: str) -> None:
        self._metrics.events_dropped.inc()
        fields = log_fields(subject_of(queued))
        _LOG.warning("dropped event %s: %s", queued["reason"], why, extra=fields)
