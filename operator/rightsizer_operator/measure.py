"""What running plans say of themselves: rank 0 of each serves the agent's metrics, and is asked."""

import asyncio
import datetime as dt
import logging

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from rightsizer_launch import metrics as agent
from rightsizer_operator.cache import Key
from rightsizer_operator.conditions import reason_of
from rightsizer_operator.loop import Loop
from rightsizer_operator.names import METRICS_PORT
from rightsizer_operator.world import Progress

__all__ = ["measure", "parse"]

_LOG = logging.getLogger("rightsizer.operator")
_EVERY_S = 15.0
_TIMEOUT_S = 2.0
_MOST_BYTES = 262_144
_MANY = 32  # requests at a time


def parse(text: str) -> Progress | None:
    """The agent's metrics; None where they say nothing of progress."""
    try:
        values = {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    except ValueError:
        return None
    if agent.POSITION not in values or agent.TOKENS_PER_SECOND not in values:
        return None
    saved = values.get(agent.CHECKPOINT_TIMESTAMP, 0.0)
    return Progress(
        tokens=max(0.0, values[agent.POSITION]),
        tokens_per_s=max(0.0, values[agent.TOKENS_PER_SECOND]),
        step=int(values.get(agent.STEP, 0)),
        restarts=int(values.get(agent.RESTARTS, 0)),
        loss=values.get(agent.LOSS),
        checkpoint_at=dt.datetime.fromtimestamp(saved, dt.UTC) if saved > 0 else None,
    )


async def measure(loop: Loop) -> None:
    """Ask every running plan, again and again; a plan that does not answer is not measured, nothing worse."""
    known: dict[Key, str] = {}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while True:
            await asyncio.sleep(_EVERY_S)
            if loop.leads:
                await _sweep(loop, session, known)


async def _sweep(loop: Loop, session: aiohttp.ClientSession, known: dict[Key, str]) -> None:
    gate = asyncio.Semaphore(_MANY)

    async def ask(key: Key) -> None:
        async with gate:
            found = await _ask(loop, session, key, known)
        if found is None:
            loop.progress.pop(key, None)
        else:
            loop.progress[key] = found
        loop.push(key)

    running = [
        key
        for key, plan in loop.cache.plans.items()
        if reason_of(plan.get("status") or {}, "Ready") in {"Running", "Recovering"}
    ]
    for key in loop.progress.keys() - set(running):
        del loop.progress[key]
    await asyncio.gather(*(ask(key) for key in running))


async def _ask(
    loop: Loop, session: aiohttp.ClientSession, key: Key, known: dict[Key, str]
) -> Progress | None:
    """Rank 0's word: of the pod that had it last time, else of whichever answers."""
    address = known.get(key)
    if address and (found := await _read(session, address)):
        return found
    known.pop(key, None)
    for address in await loop.addresses(key):
        if found := await _read(session, address):
            known[key] = address
            return found
    return None


async def _read(session: aiohttp.ClientSession, address: str) -> Progress | None:
    host = f"[{address}]" if ":" in address else address
    try:
        async with session.get(f"http://{host}:{METRICS_PORT}/metrics", allow_redirects=False) as answer:
            if answer.status != 200:
                return None
            body = await answer.content.read(_MOST_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
    return parse(body.decode(errors="replace"))
