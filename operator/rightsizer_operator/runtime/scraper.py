"""What running plans say of themselves: rank 0 of each serves the agent's metrics, and is asked."""

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping, Sequence

import aiohttp

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.measure.agent_metrics import parse_agent_metrics
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.values.conditions import reason_of
from rightsizer_operator.values.names import METRICS_PORT
from rightsizer_operator.values.snapshot import Key, Progress

__all__ = ["ScrapeSchedule", "measure", "read_limited"]

_TIMEOUT_S = 2.0
_MOST_BYTES = 262_144
_MANY = 32  # requests at a time
_PATIENT, _RAREST = 2, 8  # times in a row that a silent plan is asked as others are; then, sweeps between


async def measure(controller: Controller) -> None:
    """Ask every running plan, again and again; a plan that does not answer is not measured, nothing worse."""
    book = ScrapeSchedule(controller.settings.measure_s)
    judge = _Judge(controller)
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
        group.create_task(judge.work())
        next_s = time.monotonic()
        while True:
            next_s = max(
                next_s + controller.settings.measure_s, time.monotonic()
            )  # what asking takes is no gap
            await asyncio.sleep(next_s - time.monotonic())
            if controller.leads:
                await _sweep(controller, session, book, judge)


class ScrapeSchedule:
    """Where each plan answers, and when to ask again those that do not: soon at first, then less and less."""

    def __init__(self, every_s: float) -> None:
        self.known: dict[Key, str] = {}
        self._every_s = every_s
        self._silent: dict[Key, tuple[int, float]] = {}

    def due(self, key: Key, *, now_s: float) -> bool:
        """Whether to ask this plan now."""
        return key not in self._silent or self._silent[key][1] <= now_s

    def heard(self, key: Key, *, answered: bool, now_s: float) -> None:
        """Note whether it answered."""
        if answered:
            self._silent.pop(key, None)
            return
        times = self._silent.get(key, (0, 0.0))[0] + 1
        sweeps = min(_RAREST, 2 ** max(0, times - _PATIENT))
        self._silent[key] = (times, now_s + (sweeps - 0.5) * self._every_s)

    def keep(self, keys: Collection[Key]) -> None:
        """Forget the others."""
        for each in (self.known, self._silent):
            for key in each.keys() - set(keys):
                del each[key]


class _Judge:
    """Judges one plan after the other, beside the questions: a first look is a search, and takes its time."""

    def __init__(self, controller: Controller) -> None:
        self._loop = controller
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._waiting: set[Key] = set()

    def look_at(self, key: Key) -> None:
        """Judge this plan when it is its turn."""
        if key not in self._waiting:
            self._waiting.add(key)
            self._queue.put_nowait(key)

    async def work(self) -> None:
        """Without end; whether it is time for a judgement, the advisor knows."""
        while True:
            key = await self._queue.get()
            self._waiting.discard(key)
            work = self._loop.advisor.question(key, self._loop.cache, now_s=time.monotonic())
            if work is not None:
                await asyncio.to_thread(work)
                self._loop.push(key)


async def _sweep(
    controller: Controller, session: aiohttp.ClientSession, book: ScrapeSchedule, judge: _Judge
) -> None:
    running = {
        key
        for key, plan in controller.cache.plans.items()
        if reason_of(plan.get("status") or {}, "Ready") in {"Running", "Recovering"}
    }
    book.keep(running)
    for key in controller.advisor.progress.keys() - running:
        controller.advisor.forget(key)
    if running:
        with contextlib.suppress(ApiError):  # the count before stands
            await controller.around.count_others(within_s=controller.settings.decide_s)
    now_s, round_ = time.monotonic(), _Round(controller, session, book, judge)
    due = [key for key in running if book.due(key, now_s=now_s)]
    known = {key: (book.known[key],) for key in due if key in book.known}
    silent, _ = await asyncio.gather(round_.ask(known), round_.find([key for key in due if key not in known]))
    await round_.find(silent)


class _Round:
    """One round of questions: to rank 0's pod of last time, else to whichever answers."""

    def __init__(
        self, controller: Controller, session: aiohttp.ClientSession, book: ScrapeSchedule, judge: _Judge
    ) -> None:
        self._loop, self._session, self._book, self._judge = controller, session, book, judge
        self._gate = asyncio.Semaphore(_MANY)

    async def find(self, keys: Collection[Key]) -> None:
        """Ask plans of which it is not known where they answer; they are looked up together."""
        where = await self._loop.around.addresses(keys)
        for key in await self.ask({key: where.get(key, ()) for key in keys}):
            self._heard(key, None)

    async def ask(self, where: Mapping[Key, Sequence[str]]) -> list[Key]:
        """Ask plans at these addresses; those of which none answered."""
        answered = await asyncio.gather(*(self._answers(key, there) for key, there in where.items()))
        return [key for key, answers in zip(where, answered, strict=True) if not answers]

    async def _answers(self, key: Key, addresses: Sequence[str]) -> bool:
        async with self._gate:
            for address in addresses:
                if found := await _read(self._session, address):
                    self._book.known[key] = address
                    self._heard(key, found)
                    return True
        self._book.known.pop(key, None)
        return False

    def _heard(self, key: Key, found: Progress | None) -> None:
        now_s, news = time.monotonic(), found is not None or key in self._loop.advisor.progress
        self._book.heard(key, answered=found is not None, now_s=now_s)
        self._loop.advisor.heard(key, found, at_s=now_s)
        self._judge.look_at(key)
        if news:
            self._loop.push(key)


async def _read(session: aiohttp.ClientSession, address: str) -> Progress | None:
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{METRICS_PORT}/metrics", allow_redirects=False) as answer:
            if answer.status != 200:
                return None
            body = await read_limited(answer.content, most_bytes=_MOST_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    return None if body is None else parse_agent_metrics(body.decode(errors="replace"))


async def read_limited(content: aiohttp.StreamReader, *, most_bytes: int) -> bytes | None:
    """The whole body; None if it is longer. A single `read(n)` returns the first chunk only."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > most_bytes:
            return None
    return bytes(body)
