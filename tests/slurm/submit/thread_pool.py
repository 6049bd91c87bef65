"""A stand-in for SizingPool: calls a function in threads of this process, fair to tenants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from rightsizer_launch.bounded.fair_slots import FairSlots
from rightsizer_launch.bounded.sizing_pool import Call


class ThreadPool:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function, self._slots = function, FairSlots(2)
        self.waiting = self._slots.waiting

    @asynccontextmanager
    async def turn(self, tenant: Hashable) -> AsyncIterator[Call]:
        async with self._slots.turn(tenant):
            yield partial(asyncio.to_thread, self._function)

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass
