import asyncio
import copy

import pytest

from rightsizer_engine.domain.reading import Missing
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.runtime.controller import Controller
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import ReportedProgress

FREE = {"resources": {"gpus": None}, "layout": {"microBatch": 4}}  # how many is rightsizer's to say


def metadata(**changes):
    names = {"namespace": "team", "name": "demo", "uid": "uid-1", "generation": 1, "resourceVersion": "1"}
    return names | changes


def scraped(advisor, plan, *, until_s, from_s=0.0, every_s=15.0):
    """Scrapes of a steady run: 100 tokens/s, a step a second."""
    at_s = from_s
    while at_s <= until_s:
        progress = ReportedProgress(
            tokens=100.0 * at_s, tokens_per_s=100.0, step=int(at_s), workers=1, phase="training"
        )
        advisor.record(plan, progress, at_s=at_s)
        at_s += every_s


@pytest.fixture
def advised(fake_cluster):
    """advised(): an advisor with a pending decision about a running plan, that plan and its Job."""

    def make():
        run = fake_cluster(FREE | {"elasticity": {"mode": "Auto"}}).settle()
        run.job(ready=run.job()["spec"]["parallelism"])
        plan = {**run.settle().plan, "metadata": run.plan["metadata"] | {"resourceVersion": "1"}}
        advisor, cache = Advisor(OperatorSettings()), Cache()
        advisor.set_counters(Counters(awaited=True, readings=Missing(reason="connection refused")))
        cache.set_plan(plan)
        scraped(advisor, plan, until_s=1500.0)
        advisor.due_work(("team", "demo"), cache, now_s=1500.0)()
        assert advisor.decision(plan) is not None
        job = copy.deepcopy(run.job())
        job["metadata"] |= {"resourceVersion": "1", "uid": "job-1"}
        return advisor, plan, job

    return make


def test_a_decision_is_pending_until_it_is_consumed_and_consuming_twice_is_harmless(advised):
    advisor, plan, _ = advised()
    decision = advisor.decision(plan)
    assert advisor.decision(plan) is decision
    for _ in range(2):
        advisor.consume(("team", "demo"), decision)
        assert advisor.decision(plan) is None


@pytest.mark.parametrize(
    ("change", "progress"),
    [({"uid": "uid-2"}, False), ({"generation": 2}, True)],
    ids=["recreated", "edited"],
)
def test_a_decision_never_passes_to_a_recreated_or_edited_plan(advised, change, progress):
    advisor, plan, _ = advised()
    other = {**plan, "metadata": plan["metadata"] | change}
    assert advisor.decision(other) is None
    assert (advisor.progress(other) is not None) == progress


def test_a_recreated_plan_is_measured_anew():
    advisor, cache = Advisor(OperatorSettings()), Cache()
    old, new = {"metadata": metadata()}, {"metadata": metadata(uid="uid-2", resourceVersion="2")}
    scraped(advisor, old, until_s=600.0)
    cache.set_plan(new)
    assert advisor.due_work(("team", "demo"), cache, now_s=700.0) is None
    scraped(advisor, new, from_s=700.0, until_s=700.0)
    assert advisor.due_work(("team", "demo"), cache, now_s=701.0) is None


class ConflictingApi:
    """An API server that refuses the first status write (409), and records the later ones."""

    def __init__(self, plan):
        self.plan, self.conflicts, self.writes = plan, 1, []

    async def patch_status(self, namespace, name, version, patch):
        if self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "the object has been modified")
        self.writes.append(patch)
        return {**self.plan, "status": self.plan["status"] | patch}

    async def apply(self, child):
        return child

    async def children(self, *_args):
        return []

    async def call(self, *_args, **_kwargs):
        return {}


def test_a_conflict_of_the_status_write_loses_no_decision(advised):
    advisor, plan, job = advised()
    api = ConflictingApi(plan)

    async def reconciled():
        controller = Controller(api, Metrics(), OperatorSettings(), ())
        controller.advisor = advisor
        controller.cache.set_plan(plan)
        controller.cache.set_job(job)
        with pytest.raises(ApiError):
            await controller._reconcile(("team", "demo"))
        assert advisor.decision(plan) is not None
        await controller._reconcile(("team", "demo"))

    asyncio.run(reconciled())
    assert "recommendation" in api.writes[0]
    assert advisor.decision(plan) is None
