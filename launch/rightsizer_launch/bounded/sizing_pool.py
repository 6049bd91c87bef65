"""A pool of bounded child processes that size: operator, Slurm daemon and page use the same one.

Tenants (namespaces, users) take turns, and each has one process at a time. A call that crashes its process,
or needs too much memory or time, ends with `ChildError`; the next call has a new process. A caller that is
cancelled ends its call.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol

from rightsizer_launch.bounded.fair_slots import FairSlots
from rightsizer_launch.bounded.process import BoundedProcess, ChildError, ChildLimits

_LOG = logging.getLogger("rightsizer.sizing")

Call = Callable[[Any], Awaitable[Any]]


class FairPool(Protocol):
    """The callers' view of `SizingPool`."""

    def waiting(self, tenant: Hashable) -> int:
        """The number of a tenant's waiting calls."""

    def start(self) -> None:
        """Be ready for the first call; returns at once."""

    def turn(self, tenant: Hashable) -> AbstractAsyncContextManager[Call]:
        """Wait for a turn and hold it: one call after another, each the result or ChildError."""

    def close(self) -> None:
        """End all calls."""


class SizingPool:
    """`processes` child processes that call `function` ("module:name") with one argument at a time."""

    def __init__(self, function: str, limits: ChildLimits, *, processes: int = 1) -> None:
        self._all = [BoundedProcess(function, limits) for _ in range(processes)]
        self._idle = list(self._all)  # the last one has the most tables in its caches
        self._slots = FairSlots(processes)
        self._threads = ThreadPoolExecutor(processes)  # each waits for one process
        self._closed = False

    def waiting(self, tenant: Hashable) -> int:
        """The number of a tenant's waiting calls."""
        return self._slots.waiting(tenant)

    def start(self) -> None:
        """Start all processes, so that no call waits for their imports; returns at once."""
        for child in self._all:
            self._threads.submit(self._start, child)

    def _start(self, child: BoundedProcess) -> None:
        try:
            child.start()
        except ChildError as error:  # the next call tries again and raises it
            if not self._closed:
                _LOG.warning("a sizing process does not start: %s", error)

    @asynccontextmanager
    async def turn(self, tenant: Hashable) -> AsyncIterator[Call]:
        """Wait for a turn and hold it. Yields the call."""
        async with self._slots.turn(tenant):
            child = self._idle.pop()
            try:
                yield partial(self._call, child)
            finally:
                self._idle.append(child)

    async def _call(self, child: BoundedProcess, argument: Any) -> Any:
        abandoned = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, child.call, argument, abandoned)
        except asyncio.CancelledError:
            abandoned.set()
            child.interrupt()
            if not self._closed:
                self._threads.submit(self._start, child)
            raise

    def close(self) -> None:
        """End all processes; calls in progress and later ones raise ChildError."""
        self._closed = True
        for child in self._all:
            child.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
