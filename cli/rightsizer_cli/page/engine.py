"""Answers from processes of their own, so that a question ends with the last one who waits for it.

A plan of a large model on several GPU types takes minutes, and a thread cannot be ended.
"""

import asyncio
import contextlib
import multiprocessing
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection

from rightsizer_cli.page.answer import Answer, answered
from rightsizer_cli.page.form import Query

_AT_ONCE = 2
"""Questions computed at a time: a slow one in one tab leaves the other tab usable."""
_KEPT = 32
_IMPORTED = ("rightsizer_cli.page.answer", "rightsizer_engine.search.levers")
_PROCESSES = multiprocessing.get_context("forkserver")


class Engine:
    """Computes answers and keeps the last ones: a page asks twice, for its text and for its picture."""

    def __init__(self, compute: Callable[[Query], Answer] = answered) -> None:
        self._compute = compute
        self._kept: OrderedDict[tuple[tuple[str, str], ...], Answer] = OrderedDict()
        self._free = asyncio.Semaphore(_AT_ONCE)

    def warm(self) -> None:
        """Start the server of the processes, so that the first question does not wait for imports."""
        _PROCESSES.set_forkserver_preload(list(_IMPORTED))
        first = _PROCESSES.Process(target=int, daemon=True)
        first.start()
        first.join()

    async def ask(self, query: Query) -> Answer:
        """The answer. Who stops waiting for it ends its computation."""
        key = tuple(query.items())
        if key not in self._kept:
            async with self._free:
                self._kept[key] = await self._computed(query)
        self._kept.move_to_end(key)
        answer = self._kept[key]
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return answer

    async def _computed(self, query: Query) -> Answer:
        async with _process(self._compute, query) as answers:
            await _readable(answers)
            try:
                answer: Answer = answers.recv()
            except EOFError:
                return Answer(error="the computation was ended by the system: is there memory left?")
        return answer


@contextlib.asynccontextmanager
async def _process(compute: Callable[[Query], Answer], query: Query) -> AsyncIterator[Connection]:
    """A process that computes an answer, and ends with this context."""
    answers, sender = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_compute, args=(compute, dict(query), sender), daemon=True)
    process.start()
    sender.close()
    try:
        yield answers
    finally:
        process.kill()
        process.join()
        answers.close()


async def _readable(pipe: Connection) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pipe.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(pipe.fileno())


def _compute(compute: Callable[[Query], Answer], query: Query, sender: Connection) -> None:
    """What the process does. Ctrl-C in its terminal is for the server, which ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender.send(compute(query))
