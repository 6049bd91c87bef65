"""A TTL cache of one value with single-flight refresh."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["TTLCache"]

T = TypeVar("T")
_MIN_REFRESH_S = 1.0  # an invalidated value is refreshed at most this often


class TTLCache(Generic[T]):
    """The newest value. Callers that arrive during a refresh wait for its result."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._lock = asyncio.Lock()
        self._cached: tuple[float, T] | None = None
        self._invalidated_at = float("-inf")

    def invalidate(self) -> None:
        """Make values read before now expire early."""
        self._invalidated_at = self._clock()

    async def get(self, *, max_age_s: float) -> T:
        """A value whose read began at most `max_age_s` ago."""
        async with self._lock:
            if self._cached is not None:
                read_at, value = self._cached
                ttl_s = min(max_age_s, _MIN_REFRESH_S) if read_at < self._invalidated_at else max_age_s
                if self._clock() - read_at < ttl_s:
                    return value
            began = self._clock()
            value = await self._read()
            self._cached = (began, value)
            return value
