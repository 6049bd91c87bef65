"""A reading that many ask for at once and that may be a little old: it is made once for all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["TTLCache"]

T = TypeVar("T")
_HURRY_S = 1.0  # what was asked to be read anew is read at most so often


class TTLCache(Generic[T]):
    """The newest reading; who asks while one is made waits for it."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._lock = asyncio.Lock()
        self._known: tuple[float, T] | None = None
        self._changed_at = float("-inf")

    def forget(self) -> None:
        """Something has changed: what was read before is too old soon."""
        self._changed_at = self._clock()

    async def get(self, *, within_s: float) -> T:
        """A reading that was begun at most so long ago."""
        async with self._lock:
            if self._known is not None:
                at, value = self._known
                most_s = min(within_s, _HURRY_S) if at < self._changed_at else within_s
                if self._clock() - at < most_s:
                    return value
            began = self._clock()
            value = await self._read()
            self._known = (began, value)
            return value
