"""The controller against a stand-in for the API server: a plan's life, refusals, and what it forgets."""

import asyncio
import contextlib
import datetime as dt
import json

import pytest
from tests.operator.runtime.inline_pool import InlinePool

from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.sizing import Lane, Sizing
from rightsizer_operator.values.settings import OperatorSettings

PLAN = "/apis/rightsizer.dev/v1alpha1/namespaces/team/trainingplans/demo"
JOB = "/apis/batch/v1/namespaces/team/jobs/demo-a1"
STORE = "/apis/apps/v1/namespaces/team/replicasets/demo-rdzv"
OTHER = PLAN.replace("team", "other")
KEY = ("team", "demo")
LONG_S = 30.0  # on a busy machine; nothing here waits for it


class Running:
    """A controller that leads in this event loop; a watch reports every change to it."""

    def __init__(self, api, fake_cluster, pools=None, **settings):
        self.api, self.metrics = api, Metrics()
        self.fake = fake_cluster
        now = dt.datetime.now(dt.UTC)
        fake_cluster.plan["metadata"]["creationTimestamp"] = now.isoformat(timespec="seconds")
        settings = OperatorSettings(**{"refresh_s": 3600.0} | settings)
        kube = KubeClient(api, self.metrics, dry_run=settings.dry_run)
        sizing = Sizing([Lane(pool=pool, budget_s=1.0) for pool in pools or (InlinePool(),)], budget_s=1.0)
        self.controller = Controller(kube, self.metrics, settings, (), sizing)
        api.told = self.tell
        for node in fake_cluster.nodes:
            self.node(node.name)

    def node(self, name):
        return self.api.put(
            f"/api/v1/nodes/{name}",
            {
                "metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
                "status": {
                    "allocatable": {"nvidia.com/gpu": "8"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            },
        )

    def plan(self):
        return self.api.put(PLAN, self.fake.plan)

    def tell(self, path, thing):
        saw = {
            "trainingplans": self.controller.on_plan,
            "jobs": self.controller.on_job,
            "replicasets": self.controller.on_rendezvous,
        }
        plural = path.split("/")[-2]
        if plural in saw and self.controller.is_leader:
            asyncio.get_running_loop().call_soon(lambda: saw[plural](thing, deleted=False))

    def state(self):
        conditions = self.api.objects[PLAN].get("status", {}).get("conditions", ())
        return next((c["reason"] for c in conditions if c["type"] == "Ready"), None)

    async def until(self, condition):
        async with asyncio.timeout(LONG_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def reaches(self, state):
        await self.until(lambda: self.state() == state)

    def job(self, **status):
        job = self.api.objects[JOB]
        return self.api.put(JOB, job | {"status": job.get("status", {}) | status})

    def store(self, ready):
        return self.api.put(STORE, self.api.objects[STORE] | {"status": {"readyReplicas": ready}})

    def sent_events(self):
        return [path for path in self.api.objects if "/events/" in path]

    def sent(self, method, end):
        return [path for sent, path, _ in self.api.requests if sent == method and path.endswith(end)]


def run(scenario, world):
    """Lead while the scenario lasts."""

    async def both():
        leading = asyncio.create_task(world.controller.lead())
        try:
            await scenario(world)
        finally:
            leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading

    asyncio.run(both())


@pytest.fixture
def world(fake_api, fake_cluster):
    return Running(fake_api, fake_cluster())


def test_a_plan_becomes_a_job_that_runs_and_completes(world):
    world.plan()

    async def scenario(world):
        await world.until(lambda: JOB in world.api.objects)
        workers = world.api.objects[JOB]["spec"]["parallelism"]
        await world.reaches("Starting")
        world.job(active=workers, ready=workers)
        world.store(ready=1)
        await world.reaches("Running")
        ended = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T12:30:00Z"}
        world.job(
            active=0, ready=0, succeeded=workers, conditions=[ended], completionTime="2026-11-21T12:30:00Z"
        )
        await world.reaches("Complete")
        await world.until(lambda: any("/events/" in path for path in world.api.objects))

    run(scenario, world)
    assert not world.controller.is_leader
    text = world.metrics.render().decode()
    assert 'rightsizer_plans{state="Complete"} 1.0' in text
    assert "rightsizer_operator_launches_total 1.0" in text


def test_a_plan_that_comes_later_is_seen_and_one_that_goes_is_forgotten(world):
    async def scenario(world):
        await world.until(lambda: world.controller.is_leader)
        plan = world.plan()
        await world.until(lambda: JOB in world.api.objects)
        world.controller.on_plan(plan, deleted=True)
        world.controller.on_job(world.api.objects[JOB], deleted=True)
        assert world.controller.cache.plans == {}

    run(scenario, world)
    assert "demo" not in world.metrics.render().decode()


def test_gpus_that_come_launch_what_waits_for_them(fake_api, fake_cluster):
    world = Running(fake_api, fake_cluster(nodes=0))
    world.plan()

    async def scenario(world):
        await world.until(lambda: world.state() in ("NoSuchGPUs", "InsufficientGPUs"))
        for name in ("n0", "n1"):
            world.controller.on_node(world.node(name), deleted=False)
        await world.until(lambda: JOB in world.api.objects)
        world.controller.on_node(world.api.objects["/api/v1/nodes/n1"], deleted=True)
        assert set(world.controller.cache.nodes) == {"n0"}

    run(scenario, world)


@pytest.mark.parametrize(
    "answer",
    [(500, b'{"message": "broken"}'), (409, b'{"message": "modified"}'), OSError("no route")],
    ids=["a fault", "a conflict", "unreachable"],
)
def test_what_fails_is_tried_again(world, answer):
    world.plan()
    world.api.refuse["PATCH", "/status"] = [answer]

    async def scenario(world):
        await world.until(lambda: JOB in world.api.objects)

    run(scenario, world)
    assert "rightsizer_operator_reconcile_failures_total 1.0" in world.metrics.render().decode()


def test_a_refused_job_is_in_the_status_until_it_is_accepted(world):
    world.plan()
    world.api.refuse["POST", "/jobs"] = [(403, b'{"message": "quota exceeded"}')] * 3

    async def scenario(world):
        await world.reaches("Refused")
        (ready,) = [c for c in world.api.objects[PLAN]["status"]["conditions"] if c["type"] == "Ready"]
        assert "Job demo-a1: quota exceeded" in ready["message"]
        await world.until(lambda: JOB in world.api.objects)

    run(scenario, world)


def test_without_its_api_a_carrier_is_refused_with_what_to_install_and_then_expected(fake_api, fake_cluster):
    world = Running(fake_api, fake_cluster({"launch": {"as": "JobSet"}}))
    world.plan()
    world.api.refuse["POST", "/jobsets"] = [(404, b"404 page not found")] * 3

    def message():
        conditions = world.api.objects[PLAN]["status"]["conditions"]
        return next(c["message"] for c in conditions if c["type"] == "Ready")

    async def scenario(world):
        await world.reaches("Refused")
        assert "does not serve jobset.x-k8s.io/v1alpha2; install JobSet" in message()
        await world.reaches("Starting")
        await world.until(lambda: "JobSet demo-a1 has no Job yet" in message())

    run(scenario, world)


def another(world, **spec):
    """A copy of the plan in another namespace."""
    other = json.loads(json.dumps(world.fake.plan).replace('"team"', '"other"'))
    other["metadata"]["uid"] = "uid-other"
    for name, change in spec.items():
        other["spec"][name] |= change
    world.api.put(OTHER, other)


def test_a_fault_of_ours_in_one_plan_is_its_condition_an_event_and_a_metric(world):
    another(world)
    world.plan()
    world.api.refuse["GET", "/team/resourcequotas"] = [
        (200, b'{"items": [{}]}')
    ] * 2  # of no form that we know

    async def scenario(world):
        await world.until(lambda: JOB.replace("team", "other") in world.api.objects)
        await world.reaches("Fault")
        await world.until(
            lambda: "Fault" in {world.api.objects[path]["reason"] for path in world.sent_events()}
        )
        world.controller.enqueue(KEY)  # the fault goes on, and is told once
        await world.until(lambda: not world.api.refuse["GET", "/team/resourcequotas"])
        world.controller.enqueue(KEY)
        await world.reaches("Starting")

    run(scenario, world)
    conditions = {c["type"]: c for c in world.api.objects[PLAN]["status"]["conditions"]}
    assert conditions["Accepted"]["reason"] == "Valid"
    assert [world.api.objects[path]["reason"] for path in world.sent_events()].count("Fault") == 1
    assert "rightsizer_operator_faults_total 2.0" in world.metrics.render().decode()


def test_a_plan_with_an_endless_search_delays_no_other(fake_api, fake_cluster):
    endless = 7e7
    world = Running(
        fake_api,
        fake_cluster({"workload": {"tokens": "70M"}}),
        (InlinePool(most=5e7), InlinePool(endless)),
    )
    world.plan()

    async def scenario(world):
        await world.reaches("Sizing")
        another(world, workload={"tokens": "10M"})
        await world.until(lambda: JOB.replace("team", "other") in world.api.objects)

    run(scenario, world)
    assert world.state() == "Sizing"
    assert JOB not in world.api.objects


def test_a_plan_over_the_sizing_budget_is_refused_once_and_sized_when_simpler(fake_api, fake_cluster):
    pool = InlinePool(most=5e7)
    world = Running(fake_api, fake_cluster({"workload": {"tokens": "70M"}}), (pool,), retry_s=0.01)
    world.plan()

    async def scenario(world):
        await world.reaches("SizingTooLong")
        (sized,) = [c for c in world.api.objects[PLAN]["status"]["conditions"] if c["type"] == "Sized"]
        assert "stopped after 1 s of processor time; set spec.layout" in sized["message"]
        world.fake.edit(workload={"tokens": "20M"})
        world.api.objects[PLAN] |= {"spec": world.fake.plan["spec"]}
        world.api.put(PLAN, world.api.objects[PLAN] | {"metadata": {"generation": 2}})
        await world.until(lambda: JOB in world.api.objects)

    run(scenario, world)


@pytest.mark.slow
def test_an_unresponsive_api_server_is_waited_for_at_first(world):
    world.plan()
    world.api.refuse["GET", "/nodes"] = [OSError("no route")]

    async def scenario(world):
        await world.until(lambda: JOB in world.api.objects)

    run(scenario, world)


def test_everything_is_read_anew_now_and_then(fake_api, fake_cluster):
    world = Running(fake_api, fake_cluster(), refresh_s=0.05)
    world.plan()

    async def scenario(world):
        await world.until(lambda: JOB in world.api.objects)
        fake_api.refuse["GET", "/nodes"] = [OSError("no route")]
        del fake_api.objects[PLAN], fake_api.objects[JOB]  # and no watch tells
        await world.until(lambda: not world.controller.cache.plans)

    run(scenario, world)


def test_a_dry_run_changes_nothing(fake_api, fake_cluster):
    world = Running(fake_api, fake_cluster(), dry_run=True)
    before = world.plan()

    async def scenario(world):
        await world.until(lambda: world.sent("PATCH", "/status"))

    run(scenario, world)
    assert fake_api.objects[PLAN] == before
    assert JOB not in fake_api.objects


def test_a_failed_worker_s_pods_are_looked_at_and_only_the_plan_s_count(world):
    world.plan()

    async def scenario(world):
        await world.until(lambda: JOB in world.api.objects)
        uid = world.api.objects[JOB]["metadata"]["uid"]
        for name, owner in (("demo-a1-0", uid), ("fake", "somebody")):
            labels = {"rightsizer.dev/plan": "demo", "rightsizer.dev/role": "worker"}
            metadata = {
                "namespace": "team",
                "labels": labels,
                "ownerReferences": [{"kind": "Job", "name": "x", "uid": owner}],
            }
            world.api.put(
                f"/api/v1/namespaces/team/pods/{name}", {"metadata": metadata, "spec": {}, "status": {}}
            )
        await world.reaches("Starting")
        world.job(active=2, ready=2)
        world.store(ready=1)
        await world.reaches("Running")
        world.job(active=1, ready=1, failed=1)
        await world.until(lambda: world.sent("GET", "/namespaces/team/pods"))

    run(scenario, world)


def test_a_plan_that_is_no_news_and_a_follower_push_nothing(world):
    plan = world.plan()
    world.controller.on_plan(plan, deleted=False)
    world.controller.on_plan(plan, deleted=False)
    world.controller.enqueue(KEY)
    assert "rightsizer_operator_queue 0.0" in world.metrics.render().decode()


@pytest.mark.parametrize(
    ("status", "name", "served"),
    [(404, "", False), (200, "others", False), (200, "trainingplans", True)],
    ids=["no group", "no plans", "plans"],
)
def test_the_api_server_reports_whether_the_crd_exists(world, status, name, served):
    world.api.refuse["GET", "/v1alpha1"] = [(status, json.dumps({"resources": [{"name": name}]}).encode())]
    assert asyncio.run(world.controller.serves_plans()) is served


def test_an_overloaded_api_server_does_not_decide_whether_the_crd_exists(world):
    world.api.refuse["GET", "/v1alpha1"] = [(503, b'{"message": "overloaded"}')]
    with pytest.raises(ApiError):
        asyncio.run(world.controller.serves_plans())


def test_without_their_definition_plans_are_waited_for_and_the_operator_is_alive(world):
    world.plan()
    world.api.refuse["GET", "/trainingplans"] = [(404, b'{"message": "not found"}')]
    world.controller.last_relist_s = 0.0

    async def scenario(world):
        await world.until(lambda: world.controller.last_relist_s)
        assert not world.api.refuse["GET", "/trainingplans"]
        await world.until(lambda: JOB in world.api.objects)

    run(scenario, world)
