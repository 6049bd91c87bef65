"""What GPU counters say of running plans, from Prometheus, in a few questions for all of them."""

import asyncio

from rightsizer_operator.cache import Cache
from rightsizer_operator.loop import Loop
from rightsizer_telemetry.client import Access, Prometheus
from rightsizer_telemetry.readings import Job, read

__all__ = ["count", "jobs_of"]


async def count(loop: Loop, access: Access) -> None:
    """Ask again and again; a Prometheus that is away, or knows nothing, leaves everything unknown."""
    with Prometheus(access) as client:
        while True:
            await asyncio.sleep(loop.settings.decide_s)
            asked = jobs_of(loop.cache, window_s=loop.settings.window_s) if loop.leads else ()
            if asked:
                found = await asyncio.to_thread(read, client, asked)
                loop.advisor.counted(
                    {key: reading for key, reading in found.items() if isinstance(key, tuple)}
                )


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
        if job.lives and job.ready
    )
