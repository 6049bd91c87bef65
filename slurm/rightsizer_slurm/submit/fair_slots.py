"""A semaphore that is fair to users: they take turns, and each has one slot at a time."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["FairSlots"]


class FairSlots:
    """`slots` pieces of work at once. A user with a thousand delays others by the one that is running."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._busy: set[int] = set()
        self._queues: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, user: int) -> int:
        """How many pieces of a user's work wait."""
        return len(self._queues.get(user, ()))

    @asynccontextmanager
    async def turn(self, user: int) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        granted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(user, deque()).append(granted)
        self._grant()
        await granted
        try:
            yield
        finally:
            self._free += 1
            self._busy.discard(user)
            if user in self._queues:
                self._queues.move_to_end(user)
            self._grant()

    def _grant(self) -> None:
        """Give the free slots to the users whose last turn is longest ago."""
        for user in [user for user in self._queues if user not in self._busy][: self._free]:
            queue = self._queues.pop(user)
            queue.popleft().set_result(None)
            self._free -= 1
            self._busy.add(user)
            if queue:
                self._queues[user] = queue
