"""The controller's work queue: each key at most once, one worker per key, with two priorities."""

import asyncio
from collections.abc import Callable
from typing import Any

from rightsizer_operator.values.metadata import Key

_LOW_PRIORITY_EVERY = 4  # while both lanes have keys, one get in so many takes a low-priority key


class WorkQueue:
    """Plans whose spec has changed have high priority; status updates of running plans have low priority.

    A burst of new plans is thus launched before the status of launched ones is updated. `on_length` is called
    with the number of queued keys.
    """

    def __init__(self, on_length: Callable[[float], Any]) -> None:
        self._on_length = on_length
        self._high: dict[Key, None] = {}
        self._low: dict[Key, None] = {}
        self._available = asyncio.Semaphore(0)
        self._processing: set[Key] = set()
        self._dirty: dict[Key, bool] = {}
        self._gets = 0

    def add(self, key: Key, *, high: bool) -> None:
        """Queue a key. A key that is being processed is queued again when it is done."""
        if key in self._processing:
            self._dirty[key] = high or self._dirty.get(key, False)
            return
        queued = key in self._high or key in self._low
        if high:
            self._low.pop(key, None)
            self._high.setdefault(key)
        elif key not in self._high:
            self._low.setdefault(key)
        if not queued:
            self._available.release()
        self._report_length()

    async def get(self) -> Key:
        """Wait for the next key. No other worker gets it until `done`."""
        await self._available.acquire()
        self._gets += 1
        use_low = self._low and (not self._high or self._gets % _LOW_PRIORITY_EVERY == 0)
        lane = self._low if use_low else self._high
        key = next(iter(lane))
        del lane[key]
        self._processing.add(key)
        self._report_length()
        return key

    def done(self, key: Key) -> None:
        """Mark a key as processed."""
        self._processing.discard(key)
        high = self._dirty.pop(key, None)
        if high is not None:
            self.add(key, high=high)

    def clear(self) -> None:
        """Drop all keys, including those that are being processed."""
        for keys in (self._high, self._low, self._processing, self._dirty):
            keys.clear()
        self._available = asyncio.Semaphore(0)
        self._report_length()

    def _report_length(self) -> None:
        self._on_length(len(self._high) + len(self._low))
