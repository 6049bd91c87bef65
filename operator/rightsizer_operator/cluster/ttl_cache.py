"""A TTL cache of one value with single-flight refresh, which begins before the value expires."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from rightsizer_operator.cluster.client import ApiError

T = TypeVar("T")
_MIN_REFRESH_S = 1.0  # an invalidated value is refreshed at most this often
_EARLY = 0.8  # of its time to live: a value in use is read again from then on, and nobody waits for that


class TTLCache(Generic[T]):
    """The newest value. Callers that arrive during a refresh wait for its result."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._clock = read, clock
        self._lock = asyncio.Lock()
        self._cached: tuple[float, T] | None = None
        self._early: asyncio.Task[None] | None = None
        self._invalidated_at = float("-inf")

    def invalidate(self) -> None:
        """Make values read before now expire early."""
        self._invalidated_at = self._clock()

    async def get(self, *, max_age_s: float) -> T:
        """A value whose read began at most `max_age_s` ago. An error of an early read is the next read's."""
        value = self._at_most(max_age_s)
        while value is None:
            async with self._lock:
                if self._at_most(max_age_s) is None:
                    return await self._refresh()
            value = self._at_most(max_age_s)
        if self._at_most(max_age_s, _EARLY) is None and (self._early is None or self._early.done()):
            self._early = asyncio.create_task(self._refresh_early())
        return value[0]

    def _at_most(self, max_age_s: float, part: float = 1.0) -> tuple[T] | None:
        """The value, unless more than this part of its time to live is over."""
        if self._cached is None:
            return None
        read_at, value = self._cached
        ttl_s = min(max_age_s, _MIN_REFRESH_S) if read_at < self._invalidated_at else max_age_s
        return (value,) if self._clock() - read_at < part * ttl_s else None

    async def _refresh_early(self) -> None:
        async with self._lock:
            with contextlib.suppress(ApiError):
                await self._refresh()

    async def _refresh(self) -> T:
        began = self._clock()
        value = await self._read()
        self._cached = (began, value)
        return value
