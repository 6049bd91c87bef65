"""A semaphore that is fair to tenants: users or namespaces take turns, and each has one slot at a time."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairSlots:
    """`slots` pieces of work at once. A tenant with a thousand delays others by the one that is running."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._busy: set[Hashable] = set()
        self._queues: OrderedDict[Hashable, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, tenant: Hashable) -> int:
        """The number of a tenant's waiting tasks."""
        return len(self._queues.get(tenant, ()))

    @asynccontextmanager
    async def turn(self, tenant: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        granted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._leave(tenant, granted)
            else:
                self._release(tenant)  # the slot came and nobody is there
            raise
        try:
            yield
        finally:
            self._release(tenant)

    def _leave(self, tenant: Hashable, granted: asyncio.Future[None]) -> None:
        queue = self._queues.get(tenant, deque())
        if granted in queue:
            queue.remove(granted)
        if not queue:
            self._queues.pop(tenant, None)

    def _release(self, tenant: Hashable) -> None:
        self._free += 1
        self._busy.discard(tenant)
        if tenant in self._queues:
            self._queues.move_to_end(tenant)  # behind those that came during its turn
        self._grant()

    def _grant(self) -> None:
        """Give the free slots to the tenants whose last turn is longest ago."""
        for tenant in [tenant for tenant in self._queues if tenant not in self._busy]:
            if not self._free:
                return
            queue = self._queues.pop(tenant)
            while queue and queue[0].cancelled():  # its task has not had the time to leave
                queue.popleft()
            if queue:
                queue.popleft().set_result(None)
                self._free -= 1
                self._busy.add(tenant)
            if queue:
                self._queues[tenant] = queue
