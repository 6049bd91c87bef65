"""The turns of plans: a queue, timers, and a back-off after failures."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rightsizer_operator.cluster.backoff import Backoff
from rightsizer_operator.runtime.work_queue import WorkQueue
from rightsizer_operator.values.metadata import Key

_BACKOFF = Backoff(first_s=0.2, longest_s=60.0, jitter=0.5)


class Worker:
    """Gives plans their turns. `enqueue` is called when a plan's timer ends."""

    def __init__(self, on_length: Callable[[float], Any], enqueue: Callable[[Key], None]) -> None:
        self._queue, self._enqueue = WorkQueue(on_length), enqueue
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    async def run(self, process: Callable[[Key], Awaitable[None]]) -> None:
        """Process plans until cancelled; several may run, and none processes a plan that another does."""
        while True:
            key = await self._queue.get()
            try:
                await process(key)
            finally:
                self._queue.done(key)

    def add(self, key: Key, *, high: bool) -> None:
        """Queue a plan."""
        self._queue.add(key, high=high)

    def after(self, key: Key, wait_s: float) -> None:
        """Queue a plan after this long, instead of when it was to be queued before."""
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(wait_s, self._enqueue, key)

    def retry(self, key: Key, *, at_least_s: float | None) -> float:
        """Queue a plan that has failed, later with each failure; the delay in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        wait_s = _BACKOFF.wait_s(failures, at_least_s=at_least_s)
        self.after(key, wait_s)
        return wait_s

    def succeeded(self, key: Key) -> None:
        """The next failure of this plan is the first one again."""
        self._failures.pop(key, None)

    def forget(self, key: Key) -> None:
        """The plan was deleted."""
        self.succeeded(key)
        self._cancel(key)

    def clear(self) -> None:
        """Drop all plans that wait for a turn."""
        self._queue.clear()
        for key in tuple(self._timers):
            self._cancel(key)

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
