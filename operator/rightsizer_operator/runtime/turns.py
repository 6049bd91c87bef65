"""A lock whose waiters take turns by namespace: many plans of one tenant delay another tenant's by one."""

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

__all__ = ["Turns"]


class Turns:
    """One holder at a time. Namespaces that wait are served in rotation, each in the order of its waiters."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[None]:
        """Hold the lock while inside."""
        if self._held:
            await self._wait(namespace)
        self._held = True
        try:
            yield
        finally:
            self._pass_on(namespace)

    async def _wait(self, namespace: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on(namespace)  # it came and nobody is there
            raise

    def _pass_on(self, served: str) -> None:
        """Wake the first waiter of the namespace whose last turn is longest ago."""
        self._held = False
        if served in self._waiting:
            self._waiting.move_to_end(served)  # behind those that came during its turn
        while self._waiting:
            namespace, waiters = self._waiting.popitem(last=False)
            turn = waiters.popleft()
            if waiters:
                self._waiting[namespace] = waiters
            if not turn.done():
                self._held = True  # nobody overtakes it before it wakes
                turn.set_result(None)
                return
