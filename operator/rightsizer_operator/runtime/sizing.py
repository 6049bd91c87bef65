"""Sizing outside the event loop: processes with limits, a cache of answers and refusals, turns by namespace.

A search takes milliseconds or minutes, which is not known before. Each request first has a short budget in
one process; what needs more goes on in another one with the whole budget, so that quick requests never
wait for slow ones. A request beyond the whole budget is refused.
"""

import asyncio
import datetime as dt
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rightsizer_api.state import State
from rightsizer_engine.values import immutable
from rightsizer_launch.bounded.process import ChildError, ChildLimits
from rightsizer_launch.bounded.sizing_pool import Call, FairPool, SizingPool
from rightsizer_operator.reconcile.sizing_response import (
    Identity,
    NotSizedYetError,
    Size,
    SizeRequest,
    SizeResponse,
)
from rightsizer_operator.runtime import sizing_process
from rightsizer_operator.values.metadata import Key

T = TypeVar("T")
_LOG = logging.getLogger("rightsizer.operator")
_MOST_RESPONSES = 512
_QUICK_S = 0.25
_KEEP_BYTES, _MEMORY_BYTES = 224 << 20, 448 << 20  # of a process after an answer, and during one
_HANGS_AFTER = 8.0  # budgets: processor time that takes so long to get is a process that hangs
_SHORTEST_S = 20.0


@immutable
class Lane:
    """A pool whose searches each have so much processor time."""

    pool: FairPool
    budget_s: float


def sizing_lanes(budget_s: float) -> tuple[Lane, Lane]:
    """A process for quick requests and one for the others."""
    return _lane(min(_QUICK_S, budget_s), nice=0), _lane(budget_s, nice=10)  # launches wait for quick ones


def _lane(budget_s: float, *, nice: int) -> Lane:
    limits = ChildLimits(
        memory_bytes=_MEMORY_BYTES,
        keep_bytes=_KEEP_BYTES,
        time_s=max(_SHORTEST_S, _HANGS_AFTER * budget_s),
        nice=nice,
    )
    function = f"{sizing_process.__name__}:{sizing_process.respond_within.__name__}"
    return Lane(pool=SizingPool(function, limits), budget_s=budget_s)


@dataclass(slots=True)
class _Search:
    """The search of one plan."""

    size_request: SizeRequest
    generation: int
    since: dt.datetime
    task: asyncio.Task[None] | None = None
    long: bool = False
    running: bool = False


class Sizing:
    """Responses by request; each plan has one search at a time. `on_response` reconciles a plan."""

    def __init__(self, lanes: Sequence[Lane], *, budget_s: float) -> None:
        self.on_response: Callable[[Key], None] = lambda _key: None
        self._lanes = lanes
        self._refusal = SizeResponse(
            message=f"the search for a size was stopped after {budget_s:g} s of processor time",
            refusal=State.SIZING_TOO_LONG,
        )
        self._responses: OrderedDict[Identity, SizeResponse] = OrderedDict()
        self._slow: OrderedDict[Identity, None] = OrderedDict()
        self._searches: dict[Key, _Search] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start the processes."""
        for lane in self._lanes:
            lane.pool.start()

    def close(self) -> None:
        """End the processes and the searches."""
        for task in self._tasks:
            task.cancel()
        self._searches.clear()
        for lane in self._lanes:
            lane.pool.close()

    def size_of(self, key: Key) -> Size:
        """The sizer of a plan's requests: the cache."""

        def size(size_request: SizeRequest) -> SizeResponse:
            search = self._searches.get(key)
            found = self._known(size_request)
            if found is None and search is not None and search.size_request.identity in self._responses:
                near = self._responses[search.size_request.identity]
                found = near if size_request.is_met_by(near, search.size_request) else None
            if found is None:
                raise NotSizedYetError(size_request, long=search is not None and search.long)
            return found

        return size

    def since(self, key: Key, generation: int) -> dt.datetime | None:
        """When the sizing of this generation of a plan began, unless it is over."""
        search = self._searches.get(key)
        return search.since if search is not None and search.generation == generation else None

    def ask(self, key: Key, generation: int, size_request: SizeRequest) -> None:
        """Search for a size, unless a search of this plan runs: its end brings the plan back."""
        before = self._searches.get(key)
        if before is not None and before.task is not None and not before.task.done():
            return
        since = self.since(key, generation) or dt.datetime.now(dt.UTC)
        search = self._searches[key] = _Search(size_request=size_request, generation=generation, since=since)
        search.task = asyncio.create_task(self._search(key, search))
        self._tasks.add(search.task)
        search.task.add_done_callback(self._tasks.discard)

    def forget(self, key: Key) -> None:
        """The plan is sized or deleted. A search that has its turn goes on, and its answer is kept."""
        search = self._searches.pop(key, None)
        if search is not None and search.task is not None and not search.running:
            search.task.cancel()

    async def _search(self, key: Key, search: _Search) -> None:
        found: SizeResponse | None = None
        for lane in self._lanes[1:] if search.size_request.identity in self._slow else self._lanes:
            async with lane.pool.turn(key[0]) as call:
                search.running = True
                found = self._known(search.size_request) or await _within(
                    call, search.size_request, lane.budget_s
                )
                search.running = False
            if found is not None:
                break
            if not search.long:
                search.long = True
                _keep(self._slow, search.size_request.identity, None)
                self.on_response(key)
        _keep(self._responses, search.size_request.identity, found or self._refusal)
        asyncio.get_running_loop().call_soon(self.on_response, key)  # when this task is done
        self._respond_to_others(search)

    def _respond_to_others(self, done: _Search) -> None:
        """Bring back the plans that wait for a turn with the same request."""
        for key, search in self._searches.items():
            task = None if search.running or search is done else search.task
            if task is not None and not task.done() and search.size_request == done.size_request:
                task.cancel()
                asyncio.get_running_loop().call_soon(self.on_response, key)

    def _known(self, size_request: SizeRequest) -> SizeResponse | None:
        found = self._responses.get(size_request.identity)
        if found is not None:
            self._responses.move_to_end(size_request.identity)
        return found


async def _within(call: Call, size_request: SizeRequest, budget_s: float) -> SizeResponse | None:
    """The answer; None: it takes more time or memory than it may."""
    try:
        found: SizeResponse | None = await call((size_request, budget_s))
    except ChildError as error:
        _LOG.warning("a sizing process has no answer: %s", error)
        return None
    return found


def _keep(cache: OrderedDict[Identity, T], identity: Identity, value: T) -> None:
    """Store a value; drop the oldest beyond the limit."""
    cache[identity] = value
    while len(cache) > _MOST_RESPONSES:
        cache.popitem(last=False)
