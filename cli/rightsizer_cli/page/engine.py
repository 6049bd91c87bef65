"""The page's responses, from child processes: a response is computed for as long as somebody waits for it.

A plan of a large model on several GPU types takes minutes, and a thread cannot be ended.
"""

from collections import OrderedDict

from rightsizer_cli.page.form import Query
from rightsizer_cli.page.response import PageResponse
from rightsizer_launch.bounded.process import ChildError, ChildLimits
from rightsizer_launch.bounded.sizing_pool import FairPool, SizingPool

_PROCESSES = 2
"""Responses computed at a time: a slow one in one tab leaves the other tab usable."""
_KEPT = 32
_LIMITS = ChildLimits(memory_bytes=8 << 30, keep_bytes=1 << 30, time_s=3600.0, nice=0)


class Engine:
    """Computes responses and keeps the last ones: a page asks twice, for its text and for its picture."""

    def __init__(self, pool: FairPool | None = None) -> None:
        self._pool = pool or SizingPool("rightsizer_cli.page.response:respond", _LIMITS, processes=_PROCESSES)
        self._kept: OrderedDict[tuple[tuple[str, str], ...], PageResponse] = OrderedDict()

    def warm(self) -> None:
        """Start the processes, so that the first query does not wait for imports."""
        self._pool.start()

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    async def ask(self, query: Query) -> PageResponse:
        """The response. If the caller stops waiting, its computation ends."""
        key = tuple(query.items())
        if key not in self._kept:
            async with self._pool.turn(object()) as compute:  # every request is a tenant of its own
                try:
                    self._kept[key] = await compute(dict(query))
                except ChildError:
                    text = "the computation was ended by the system: is there memory left?"
                    self._kept[key] = PageResponse(error=text)
        self._kept.move_to_end(key)
        response = self._kept[key]
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return response
