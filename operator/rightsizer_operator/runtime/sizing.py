"""Sizing outside the event loop: processes with limits, a cache of answers and refusals, turns by namespace.

A search takes milliseconds or minutes, and nobody knows which before. Each question first has a short budget
in one process; what needs more goes on in another one with the whole budget, so that quick questions never
wait for slow ones. A question beyond the whole budget is refused.
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
from rightsizer_operator.reconcile.sizing_answer import (
    Identity,
    NotSizedYetError,
    Size,
    SizingAnswer,
    SizingQuestion,
)
from rightsizer_operator.runtime import sizing_process
from rightsizer_operator.values.metadata import Key

T = TypeVar("T")
_LOG = logging.getLogger("rightsizer.operator")
_MOST_ANSWERS = 512
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
    """A process for quick questions and one for the others."""
    return _lane(min(_QUICK_S, budget_s), nice=0), _lane(budget_s, nice=10)  # launches wait for quick ones


def _lane(budget_s: float, *, nice: int) -> Lane:
    limits = ChildLimits(
        memory_bytes=_MEMORY_BYTES,
        keep_bytes=_KEEP_BYTES,
        time_s=max(_SHORTEST_S, _HANGS_AFTER * budget_s),
        nice=nice,
    )
    function = f"{sizing_process.__name__}:{sizing_process.answer_within.__name__}"
    return Lane(pool=SizingPool(function, limits), budget_s=budget_s)


@dataclass(slots=True)
class _Search:
    """The search of one plan."""

    question: SizingQuestion
    generation: int
    since: dt.datetime
    task: asyncio.Task[None] | None = None
    long: bool = False
    running: bool = False


class Sizing:
    """Answers by question, one search at a time for each plan. `on_answer`: reconcile this plan."""

    def __init__(self, lanes: Sequence[Lane], *, budget_s: float) -> None:
        self.on_answer: Callable[[Key], None] = lambda _key: None
        self._lanes = lanes
        self._refusal = SizingAnswer(
            message=f"the search for a size was stopped after {budget_s:g} s of processor time",
            refusal=State.SIZING_TOO_LONG,
        )
        self._answers: OrderedDict[Identity, SizingAnswer] = OrderedDict()
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

        def size(question: SizingQuestion) -> SizingAnswer:
            search = self._searches.get(key)
            found = self._known(question)
            if found is None and search is not None and search.question.identity in self._answers:
                near = self._answers[search.question.identity]
                found = near if question.is_answered_by(near, search.question) else None
            if found is None:
                raise NotSizedYetError(question, long=search is not None and search.long)
            return found

        return size

    def since(self, key: Key, generation: int) -> dt.datetime | None:
        """When the sizing of this generation of a plan began, unless it is over."""
        search = self._searches.get(key)
        return search.since if search is not None and search.generation == generation else None

    def ask(self, key: Key, generation: int, question: SizingQuestion) -> None:
        """Search for a size, unless a search of this plan runs: its end brings the plan back."""
        before = self._searches.get(key)
        if before is not None and before.task is not None and not before.task.done():
            return
        since = self.since(key, generation) or dt.datetime.now(dt.UTC)
        search = self._searches[key] = _Search(question=question, generation=generation, since=since)
        search.task = asyncio.create_task(self._search(key, search))
        self._tasks.add(search.task)
        search.task.add_done_callback(self._tasks.discard)

    def forget(self, key: Key) -> None:
        """The plan is sized or deleted. A search that has its turn goes on, and its answer is kept."""
        search = self._searches.pop(key, None)
        if search is not None and search.task is not None and not search.running:
            search.task.cancel()

    async def _search(self, key: Key, search: _Search) -> None:
        found: SizingAnswer | None = None
        for lane in self._lanes[1:] if search.question.identity in self._slow else self._lanes:
            async with lane.pool.turn(key[0]) as call:
                search.running = True
                found = self._known(search.question) or await _within(call, search.question, lane.budget_s)
                search.running = False
            if found is not None:
                break
            if not search.long:
                search.long = True
                _keep(self._slow, search.question.identity, None)
                self.on_answer(key)
        _keep(self._answers, search.question.identity, found or self._refusal)
        asyncio.get_running_loop().call_soon(self.on_answer, key)  # when this task is done
        self._answer_others(search)

    def _answer_others(self, answered: _Search) -> None:
        """Bring back the plans that wait for a turn with the same question."""
        for key, search in self._searches.items():
            task = None if search.running or search is answered else search.task
            if task is not None and not task.done() and search.question == answered.question:
                task.cancel()
                asyncio.get_running_loop().call_soon(self.on_answer, key)

    def _known(self, question: SizingQuestion) -> SizingAnswer | None:
        found = self._answers.get(question.identity)
        if found is not None:
            self._answers.move_to_end(question.identity)
        return found


async def _within(call: Call, question: SizingQuestion, budget_s: float) -> SizingAnswer | None:
    """The answer; None: it takes more time or memory than it may."""
    try:
        found: SizingAnswer | None = await call((question, budget_s))
    except ChildError as error:
        _LOG.warning("a sizing process has no answer: %s", error)
        return None
    return found


def _keep(cache: OrderedDict[Identity, T], identity: Identity, value: T) -> None:
    """Store a value; drop the oldest beyond the limit."""
    cache[identity] = value
    while len(cache) > _MOST_ANSWERS:
        cache.popitem(last=False)
