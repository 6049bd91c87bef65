import asyncio
import contextlib
import gzip
import os
import sys
import threading
from pathlib import Path
from random import Random

import pytest
from aiohttp import web
from prometheus_client import generate_latest

from rightsizer_launch.worker.metrics import TrainMetrics
from rightsizer_operator.cluster.client import KubeClient
from rightsizer_operator.measure.agent_metrics import progress_of
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.scraper import ScrapeSchedule, read_limited, scrape
from rightsizer_operator.values.names import METRICS_PORT
from rightsizer_operator.values.settings import OperatorSettings

sys.path.append(str(Path(__file__).resolve().parents[3]))  # bench is run from the repository, not installed
from bench.fuzz import kubernetes as hostile
from bench.fuzz.inputs import damaged

KEY = ("team", "demo")
HOSTILE = int(os.environ.get("RIGHTSIZER_HOSTILE_INPUTS", "1200"))  # 100,000 take minutes
PLAN = "/apis/rightsizer.dev/v1alpha1/namespaces/team/trainingplans/demo"
JOB = "/apis/batch/v1/namespaces/team/jobs/demo-a1"
LONG_S = 60.0  # on a busy machine; nothing here waits for it


def scraped(sweeps, answers):
    """The sweeps of 15 s in which a plan is scraped that responds in those of `answers`."""
    schedule, scraped = ScrapeSchedule(15.0), []
    for sweep in range(sweeps):
        now_s = 15.0 * sweep
        if schedule.due(KEY, now_s=now_s):
            scraped.append(sweep)
            schedule.record(KEY, answered=sweep in answers, now_s=now_s + 2.0)
    return scraped


@pytest.mark.parametrize(
    ("answers", "when"),
    [
        (range(20), list(range(20))),
        ((), [0, 1, 2, 4, 8, 16]),
        ((4,), [0, 1, 2, 4, 5, 6, 7, 9, 13]),
    ],
    ids=["always", "never", "once"],
)
def test_unresponsive_plans_are_scraped_less_often(answers, when):
    assert scraped(20, answers) == when


def test_plans_that_do_not_run_are_dropped():
    schedule = ScrapeSchedule(15.0)
    schedule.addresses[KEY] = "10.0.0.1"
    schedule.record(KEY, answered=False, now_s=0.0)
    schedule.keep(())
    assert (schedule.addresses, schedule.due(KEY, now_s=0.0)) == ({}, True)


class Chunks:
    """A body that arrives in pieces, as from a slow worker."""

    def __init__(self, *chunks):
        self.chunks = chunks

    async def iter_any(self):
        for chunk in self.chunks:
            yield chunk


@pytest.mark.parametrize(
    ("most_bytes", "body"), [(8, b"654321"), (6, b"654321"), (5, None)], ids=["fits", "just", "too long"]
)
def test_a_body_is_read_to_its_end_or_not_at_all(most_bytes, body):
    assert asyncio.run(read_limited(Chunks(b"6", b"543", b"21"), most_bytes=most_bytes)) == body


class Workers:
    """A running plan's two pods, each at a loopback address of this process; rank 0's serves scrapes.

    The operator asks every pod at one fixed port: the address keeps two test processes apart.
    """

    def __init__(self, api, fake):
        fake.settle().job(active=2, ready=2)
        self.hosts = [f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 250}.{n}" for n in (1, 2)]
        self.status, self.body, self.headers, self.asked = 200, "", {}, 0
        plan = fake.settle().plan
        self.plan = api.put(PLAN, plan | {"kind": "TrainingPlan"})
        self.job = api.put(JOB, fake.job() | {"kind": "Job"})
        for n, host in enumerate(self.hosts):
            owner = {"kind": "Job", "name": "demo-a1", "uid": self.job["metadata"]["uid"]}
            labels = self.job["spec"]["template"]["metadata"]["labels"]
            path = f"/api/v1/namespaces/team/pods/w{n}"
            metadata = {"namespace": "team", "labels": labels, "ownerReferences": [owner]}
            status = {"phase": "Running", "podIP": host}
            api.put(path, {"metadata": metadata, "spec": {"containers": []}, "status": status})
        self.controller = Controller(
            KubeClient(api, Metrics()), Metrics(), OperatorSettings(measure_s=0.05), ()
        )
        self.controller.cache.set_plan(self.plan)
        self.controller.cache.set_job(self.job)

    @property
    def progress(self):
        return self.controller.advisor.progress(self.plan)

    async def answer(self, _request):
        self.asked += 1
        body = self.body if isinstance(self.body, bytes) else self.body.encode()
        return web.Response(body=body, status=self.status, headers=self.headers)

    def trains(self, **values):
        agent = TrainMetrics()
        agent.set(position_tokens=3e6, tokens_per_second=50.0, step=7, **values)
        self.body = generate_latest(agent.registry).decode()

    def run(self, scenario, *, parse=progress_of):
        """Lead and scrape while the scenario lasts; worker 1 has rank 0."""

        async def until(condition):
            async with asyncio.timeout(LONG_S):
                while not condition():
                    await asyncio.sleep(0.01)

        async def both():
            app = web.Application()
            app.router.add_get("/metrics", self.answer)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, self.hosts[1], METRICS_PORT).start()
            work = (self.controller.lead(), scrape(self.controller, parse=parse))
            tasks = [asyncio.create_task(each) for each in work]
            try:
                await scenario(until)
            finally:
                for task in tasks:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                self.controller.close()
                await runner.cleanup()

        asyncio.run(both())


@pytest.fixture
def workers(fake_api, fake_cluster):
    return Workers(fake_api, fake_cluster())


def test_the_responding_worker_gives_the_progress_and_is_scraped_alone(workers, fake_api):
    workers.trains(loss=2.5)

    async def scenario(until):
        await until(lambda: workers.progress is not None and workers.asked > 4)

    workers.run(scenario)
    assert (workers.progress.tokens, workers.progress.step, workers.progress.loss) == (3e6, 7, 2.5)
    lists = [path for method, path, query in fake_api.requests if path.endswith("team/pods")]
    assert len(lists) < workers.asked  # its address is kept


@pytest.mark.parametrize(
    ("status", "body"),
    [(503, ""), (200, "x" * 300_000), (200, "no metrics {")],
    ids=["an error", "too long", "not metrics"],
)
def test_an_unusable_response_is_no_progress(workers, status, body):
    workers.status, workers.body = status, body

    async def scenario(until):
        await until(lambda: workers.asked > 2 and KEY in workers.controller.advisor.plans)

    workers.run(scenario)
    assert workers.progress is None


FAT = "".join(f'user_metric{{n="{n}"}} 1\n' for n in range(10_700))  # 250 KiB


def test_only_our_lines_of_a_large_response_are_parsed_off_the_event_loop(workers):
    workers.trains(loss=2.5)
    workers.body = FAT + workers.body
    threads = set()

    def parse(body):
        threads.add(threading.get_ident())
        return progress_of(body)

    async def scenario(until):
        await until(lambda: workers.progress is not None)

    workers.run(scenario, parse=parse)
    assert (workers.progress.step, workers.progress.loss) == (7, 2.5)
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (FAT * 2, "more than 256 KiB of metrics"),
        ('rightsizer_train_phase{phase="x"} 0\n' * 1_000, "35 KiB of rightsizer_train metrics"),
    ],
    ids=["any", "ours"],
)
def test_an_oversized_response_is_skipped_with_its_reason(workers, fake_api, body, reason):
    workers.trains()
    sound, workers.body = workers.body, body

    def measured():
        conditions = fake_api.objects[PLAN]["status"]["conditions"]
        return next(c for c in conditions if c["type"] == "MetricsAvailable")

    async def scenario(until):
        await until(lambda: measured()["reason"] == "TooLarge")
        assert reason in measured()["message"]
        workers.body = sound
        await until(lambda: measured()["status"] == "True")

    workers.run(scenario)


def test_a_compressed_response_is_not_unpacked(workers):
    workers.trains()
    workers.body = gzip.compress(workers.body.encode() + bytes(10**7))
    workers.headers = {"Content-Encoding": "gzip"}

    async def scenario(until):
        await until(lambda: workers.asked > 2 and KEY in workers.controller.advisor.plans)

    workers.run(scenario)
    assert workers.progress is None
    assert workers.controller.advisor.scrape_refusal(workers.plan) == ""


def test_a_plan_that_no_longer_runs_is_forgotten(workers):
    workers.trains()

    async def scenario(until):
        await until(lambda: workers.progress is not None)
        workers.controller.on_plan(workers.plan, deleted=True)
        await until(lambda: KEY not in workers.controller.advisor.plans)

    workers.run(scenario)


def test_an_object_that_triggers_a_fault_does_not_end_the_scraper(workers, fake_api):
    workers.trains()
    fake_api.refuse["GET", "/api/v1/pods"] = [(200, b'{"items": [{}], "metadata": {}}')]  # of no known form

    async def scenario(until):
        await until(lambda: workers.progress is not None)

    workers.run(scenario)
    assert not fake_api.refuse["GET", "/api/v1/pods"]


def hostile_round(workers, fake_api, random):
    """A scrape, a Job, a pod and a plan's status as a tenant can write them, to the running operator."""
    workers.body = hostile.scrape(random)
    job = hostile.job(random)
    job["metadata"] |= {"namespace": "team", "ownerReferences": [VICTIM]}
    workers.controller.on_job(job, deleted=False)
    fake_api.put("/api/v1/namespaces/team/pods/hostile", damaged(random, hostile.POD, typed=True))
    path = PLAN.replace("demo", "victim")
    status = damaged(random, hostile.SIZED["status"], typed=True)
    metadata = hostile.PLAN["metadata"] | {"name": "victim", "uid": "uid-victim"}
    plan = hostile.PLAN | {"metadata": metadata, "status": status}
    workers.controller.on_plan(fake_api.put(path, plan), deleted=False)


@pytest.mark.slow
def test_nothing_that_tenants_write_ends_a_running_operator_or_stops_another_plan(
    workers, fake_api, fake_cluster
):
    random = Random(16)  # noqa: S311 -- the same inputs each time

    async def scenario(until):
        await until(lambda: workers.asked)
        for count in range(HOSTILE // 4):
            hostile_round(workers, fake_api, random)
            await asyncio.sleep(0.02 if count % 20 == 0 else 0)
        asked = workers.asked
        await until(lambda: workers.asked > asked)  # it is still scraped
        sound = fake_cluster().plan
        sound["metadata"] |= {"namespace": "sound", "uid": "uid-sound"}
        fake_api.put("/api/v1/nodes/n0", hostile.NODE | {"status": READY})
        workers.controller.on_node(fake_api.objects["/api/v1/nodes/n0"], deleted=False)
        workers.controller.on_plan(fake_api.put(PLAN.replace("team", "sound"), sound), deleted=False)
        await until(lambda: fake_api.objects[PLAN.replace("team", "sound")].get("status"))
        assert workers.controller.is_leader

    workers.run(scenario)


VICTIM = {"kind": "TrainingPlan", "name": "victim", "uid": "uid-victim", "controller": True}
READY = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
