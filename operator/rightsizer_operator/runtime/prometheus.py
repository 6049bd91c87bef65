"""What GPU counters say of running plans, from Prometheus, in a few questions for all of them."""

import asyncio
import time

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.runtime.controller import Controller
from rightsizer_telemetry.client import Access, Prometheus
from rightsizer_telemetry.readings import Job, read, trouble

__all__ = ["count", "jobs_of"]


async def count(controller: Controller, access: Access) -> None:
    """Ask again and again; a Prometheus that is away, or knows nothing, leaves everything unknown."""
    with Prometheus(access) as client:
        while True:
            asked = (
                jobs_of(controller.cache, window_s=controller.settings.window_s) if controller.leads else ()
            )
            controller.advisor.counted(await asyncio.to_thread(_counters, client, asked))
            await asyncio.sleep(controller.settings.decide_s)


def _counters(client: Prometheus, asked: tuple[Job, ...]) -> Counters:
    """Every plan's counters, or why there are none."""
    began_s = time.monotonic()
    silence = trouble(client)
    found = {} if silence or not asked else read(client, asked)
    readings = {key: reading for key, reading in found.items() if isinstance(key, tuple)}
    return Counters(awaited=True, readings=readings, silence=silence, at_s=began_s)


def jobs_of(cache: Cache, *, window_s: float) -> tuple[Job, ...]:
    """The Jobs that run, as Prometheus knows them."""
    return tuple(
        Job(
            key=key,
            executor="kubernetes",
            workload=job.name,
            namespace=key[0],
            window_s=window_s,
            gpus=job.gpus,
        )
        for key in cache.plans
        for job in cache.owned(key)
        if job.is_active and job.ready
    )
