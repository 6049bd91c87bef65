"""GPU metrics of all running plans, from a few Prometheus queries."""

import asyncio
import time

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.runtime.controller import Controller
from rightsizer_telemetry.client import Prometheus, PrometheusSettings
from rightsizer_telemetry.readings import MonitoredJob, read_shown


async def collect(controller: Controller, access: PrometheusSettings) -> None:
    """Query Prometheus every `decide_s`. If it is unavailable, the metrics are unknown."""
    with Prometheus(access) as client:
        while True:
            window_s = controller.settings.window_s
            jobs = jobs_of(controller.cache, window_s=window_s) if controller.is_leader else ()
            controller.advisor.set_counters(await asyncio.to_thread(_counters, client, jobs))
            await asyncio.sleep(controller.settings.decide_s)


def _counters(client: Prometheus, jobs: tuple[MonitoredJob, ...]) -> Counters:
    """The GPU metrics of each plan, or why there are none."""
    began_s = time.monotonic()
    return Counters(awaited=True, readings=read_shown(client, jobs), at_s=began_s)


def jobs_of(cache: Cache, *, window_s: float) -> tuple[MonitoredJob, ...]:
    """The running Jobs, as Prometheus labels them."""
    return tuple(
        MonitoredJob(
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
