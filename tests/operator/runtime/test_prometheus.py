"""The jobs in queries to Prometheus, and the GPU counters from its responses or its absence."""

import asyncio
import contextlib

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import KubeClient
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.prometheus import collect, jobs_of
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_telemetry.client import PrometheusSettings

KEY = ("team", "demo")


def running(fake_cluster, **status):
    """A cache with a plan whose Job has that status."""
    fake, cache = fake_cluster().settle(), Cache()
    metadata = fake.plan["metadata"]
    job = fake.job(**status)
    job["metadata"] |= {"uid": "job-1", "resourceVersion": "2"}
    cache.set_plan(fake.plan | {"metadata": metadata | {"resourceVersion": "1"}})
    cache.set_job(job)
    return cache


def test_a_job_with_ready_workers_is_queried_by_its_namespace_and_name(fake_cluster):
    (job,) = jobs_of(running(fake_cluster, active=2, ready=2), window_s=600.0)
    assert (job.key, job.executor, job.namespace, job.workload) == (KEY, "kubernetes", "team", "demo-a1")
    assert (job.gpus, job.window_s) == (2, 600.0)


def test_a_job_without_a_ready_worker_is_not_queried(fake_cluster):
    assert jobs_of(running(fake_cluster, active=2, ready=0), window_s=600.0) == ()


def test_without_prometheus_the_counters_are_missing_and_the_reason_is_kept(fake_api):
    controller = Controller(KubeClient(fake_api, Metrics()), Metrics(), OperatorSettings(decide_s=3600.0), ())
    access = PrometheusSettings(url=f"http://127.0.0.1:{free_port()}")

    async def first():
        collecting = asyncio.create_task(collect(controller, access))
        async with asyncio.timeout(30):
            while not controller.advisor.missing_counters(KEY):
                await asyncio.sleep(0.01)
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting

    asyncio.run(first())
    assert "refused" in controller.advisor.missing_counters(KEY).reason.lower()
