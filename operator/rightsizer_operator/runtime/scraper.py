"""Scrapes the progress of running plans from rank 0's metrics endpoint.

A tenant's process answers. What it sends is bounded for each plan and parsed in a thread: the event loop
reconciles meanwhile, and renews the Lease.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import aiohttp

from rightsizer_operator.cluster.backoff import Backoff
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.measure.agent_metrics import MOST_BYTES, MetricsTooLarge, progress_of
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.values.conditions import state_of
from rightsizer_operator.values.metadata import Key
from rightsizer_operator.values.names import METRICS_PORT
from rightsizer_operator.values.snapshot import ReportedProgress

Parse = Callable[[bytes], ReportedProgress | MetricsTooLarge | None]

_TIMEOUT_S = 2.0
_CONCURRENCY = 32
_FREE_MISSES, _MAX_SKIPPED = 2, 8  # missed scrapes before the back-off; its longest interval, in sweeps


async def scrape(controller: Controller, *, parse: Parse = progress_of) -> None:
    """Scrape all running plans every `measure_s`. A plan that does not answer has no measurements."""
    schedule = ScrapeSchedule(controller.settings.measure_s)
    advice = _AdviceWorker(controller)
    with ThreadPoolExecutor(max_workers=1) as thread:  # one, so that the event loop gets half of the time
        async with _session() as session, asyncio.TaskGroup() as group:
            client = _Client(session, thread, parse)
            group.create_task(advice.run())
            await _sweep_periodically(controller, client, schedule, advice)


def _session() -> aiohttp.ClientSession:
    """A session without compression: few bytes could become many."""
    timeout, plain = aiohttp.ClientTimeout(total=_TIMEOUT_S), {"Accept-Encoding": "identity"}
    return aiohttp.ClientSession(timeout=timeout, headers=plain, auto_decompress=False)


async def _sweep_periodically(
    controller: Controller, client: "_Client", schedule: "ScrapeSchedule", advice: "_AdviceWorker"
) -> None:
    next_s = time.monotonic()
    while True:
        next_s = max(
            next_s + controller.settings.measure_s, time.monotonic()
        )  # the period includes the sweep itself
        await asyncio.sleep(next_s - time.monotonic())
        if controller.is_leader:
            with controller.faults():  # what one object triggers must not end the operator
                await _sweep(controller, client, schedule, advice)


class ScrapeSchedule:
    """The address at which each plan responds, and an exponential back-off for unresponsive plans."""

    def __init__(self, every_s: float) -> None:
        self.addresses: dict[Key, str] = {}
        self._every_s = every_s
        self._backoff = Backoff(first_s=every_s, longest_s=_MAX_SKIPPED * every_s)
        self._missed: dict[Key, tuple[int, float]] = {}

    def due(self, key: Key, *, now_s: float) -> bool:
        """Whether to scrape this plan now."""
        return key not in self._missed or self._missed[key][1] <= now_s

    def record(self, key: Key, *, answered: bool, now_s: float) -> None:
        """Note whether the plan answered."""
        if answered:
            self._missed.pop(key, None)
            return
        misses = self._missed.get(key, (0, 0.0))[0] + 1
        wait_s = self._backoff.wait_s(misses - _FREE_MISSES + 1) - 0.5 * self._every_s
        self._missed[key] = (misses, now_s + wait_s)

    def keep(self, keys: Collection[Key]) -> None:
        """Drop all other plans."""
        for by_key in (self.addresses, self._missed):
            for key in by_key.keys() - set(keys):
                del by_key[key]


class _AdviceWorker:
    """Works out resize decisions one by one, in a thread: the first one of a plan takes a search."""

    def __init__(self, controller: Controller) -> None:
        self._loop = controller
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()

    def enqueue(self, key: Key) -> None:
        """Queue a plan."""
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    async def run(self) -> None:
        """Work until cancelled. The advisor decides whether a decision is due."""
        while True:
            key = await self._queue.get()
            self._queued.discard(key)
            with self._loop.faults(key):
                task = self._loop.advisor.due_work(key, self._loop.cache, now_s=time.monotonic())
                if task is not None:
                    await asyncio.to_thread(task)
                    self._loop.enqueue(key)


async def _sweep(
    controller: Controller, client: "_Client", schedule: ScrapeSchedule, advice: _AdviceWorker
) -> None:
    running = {
        key for key, plan in controller.cache.plans.items() if state_of(plan.get("status") or {}).trains
    }
    schedule.keep(running)
    for key in controller.advisor.plans - running:
        controller.advisor.forget(key)
    if running:
        with contextlib.suppress(ApiError):  # keep the previous count
            await controller.reader.refresh_pods(max_age_s=controller.settings.decide_s)
    now_s, sweep = time.monotonic(), _Sweep(controller, client, schedule, advice)
    due = [key for key in running if schedule.due(key, now_s=now_s)]
    located = {key: (schedule.addresses[key],) for key in due if key in schedule.addresses}
    silent, _ = await asyncio.gather(
        sweep.scrape(located), sweep.find([key for key in due if key not in located])
    )
    await sweep.find(silent)


class _Sweep:
    """One sweep: the pod that answered last time, else all pods of the plan."""

    def __init__(
        self,
        controller: Controller,
        client: "_Client",
        schedule: ScrapeSchedule,
        advice: _AdviceWorker,
    ) -> None:
        self._loop, self._client, self._schedule, self._advice = controller, client, schedule, advice
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def find(self, keys: Collection[Key]) -> None:
        """Scrape plans without a known address; their pods are listed together."""
        addresses = await self._loop.reader.addresses(keys)
        for key in await self.scrape({key: addresses.get(key, ()) for key in keys}):
            self._record(key, None)

    async def scrape(self, addresses: Mapping[Key, Sequence[str]]) -> list[Key]:
        """Scrape plans at these addresses; returns those that did not answer."""
        answered = await asyncio.gather(*(self._responses(key, hosts) for key, hosts in addresses.items()))
        return [key for key, answers in zip(addresses, answered, strict=True) if not answers]

    async def _responses(self, key: Key, addresses: Sequence[str]) -> bool:
        async with self._semaphore:
            address, found = await self._client.first(addresses)
        if isinstance(found, ReportedProgress):
            self._schedule.addresses[key] = address
            self._record(key, found)
            return True
        self._schedule.addresses.pop(key, None)
        if found is None:
            return False
        self._record(key, None, refusal=found.message)
        return True

    def _record(self, key: Key, progress: ReportedProgress | None, *, refusal: str = "") -> None:
        plan, now_s, advisor = self._loop.cache.plans.get(key), time.monotonic(), self._loop.advisor
        self._schedule.record(key, answered=progress is not None, now_s=now_s)
        if plan is None:
            return
        news = progress is not None or advisor.progress(plan) is not None
        news = news or advisor.scrape_refusal(plan) != refusal
        advisor.record(plan, progress, at_s=now_s, refusal=refusal)
        self._advice.enqueue(key)
        if news:
            self._loop.enqueue(key)


class _Client:
    """Requests pods' metrics; responses are parsed in the thread."""

    def __init__(self, session: aiohttp.ClientSession, thread: ThreadPoolExecutor, parse: Parse) -> None:
        self._session, self._thread, self._parse = session, thread, parse

    async def first(self, addresses: Sequence[str]) -> tuple[str, ReportedProgress | MetricsTooLarge | None]:
        """The first of a plan's pods that has its progress; they may send `MOST_BYTES` in all."""
        left_bytes, loop = MOST_BYTES, asyncio.get_running_loop()
        for address in addresses:
            body = await self._read(address, left_bytes)
            if isinstance(body, MetricsTooLarge):
                return address, body
            if body and (found := await loop.run_in_executor(self._thread, self._parse, body)):
                return address, found
            left_bytes -= len(body)
        return "", None

    async def _read(self, address: str, most_bytes: int) -> bytes | MetricsTooLarge:
        """A pod's response; empty without one."""
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._session.get(
                f"http://{host}:{METRICS_PORT}/metrics", allow_redirects=False
            ) as response:
                if response.status != 200:
                    return b""
                body = await read_limited(response.content, most_bytes=most_bytes)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return b""
        return MetricsTooLarge() if body is None else body


async def read_limited(content: aiohttp.StreamReader, *, most_bytes: int) -> bytes | None:
    """The whole body; None if it is longer. A single `read(n)` returns the first chunk only."""
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > most_bytes:
            return None
    return bytes(body)
