"""Resize decisions of the advisor: when one is due, its inputs, its errors."""

import copy
import dataclasses
import datetime as dt
import logging

import pytest

from rightsizer_engine.domain.reading import Missing, Phase, Reading
from rightsizer_engine.errors import InputError
from rightsizer_engine.resize.types import Action, Decision
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import ReportedProgress
from rightsizer_telemetry.readings import shown

KEY = ("team", "demo")
FREE = {
    "resources": {"gpus": None},
    "layout": {"microBatch": 4},
    "elasticity": {"mode": "Auto"},
}
GROW = Decision(action=Action.GROW, gpus=2, reason="as measured")
WAITS = {"type": "Ready", "reason": "WaitingForGPUs", "status": "False"}
STARTED_S = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC).timestamp()


class Calls:
    """A function that records its arguments and returns or raises the given result."""

    def __init__(self, result):
        self.result, self.calls = result, []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class Scene:
    """A running plan in a cache of two nodes, its advisor, and the functions that the advisor calls."""

    def __init__(self, run, advise, scaling):
        self.plan = {**run.plan, "metadata": run.plan["metadata"] | {"resourceVersion": "1"}}
        self.advise, self.scaling, self.cache = Calls(advise), Calls(scaling), Cache()
        self.now_s = 0.0
        self.advisor = Advisor(
            OperatorSettings(),
            monotonic=lambda: self.now_s,
            unix=lambda: STARTED_S + self.now_s,
            scaling=self.scaling,
            advise=self.advise,
        )
        self.cache.set_plan(self.plan)
        job = copy.deepcopy(run.job())
        job["metadata"] |= {"resourceVersion": "1", "uid": "job-1"}
        self.cache.set_job(job)
        for node in run.nodes:
            self.cache._store_node(node)

    def train(self, until_s, every_s=15.0):
        """Scrapes of a steady run: 100 tokens/s, a step a second."""
        while self.now_s < until_s:
            self.now_s += every_s
            progress = ReportedProgress(
                tokens=100.0 * self.now_s,
                tokens_per_s=100.0,
                step=int(self.now_s),
                workers=1,
                phase="training",
            )
            self.advisor.record(self.plan, progress, at_s=self.now_s)
        return self

    def decide(self):
        """Answer the question that is due; whether one was."""
        work = self.advisor.due_work(KEY, self.cache, now_s=self.now_s)
        if work is not None:
            work()
        return work is not None

    @property
    def decision(self):
        return self.advisor.decision(self.plan)

    def edit(self, **metadata):
        self.plan = {**self.plan, "metadata": self.plan["metadata"] | metadata}
        self.cache.set_plan(self.plan)


@pytest.fixture
def scene(fake_cluster):
    """scene(): a plan that has trained for 25 minutes on one GPU of 24."""

    def make(*, advise=GROW, scaling="curve", change=None):
        run = fake_cluster(FREE | (change or {})).settle()
        run.job(ready=run.job()["spec"]["parallelism"])
        return Scene(run.settle(), advise, scaling).train(until_s=1500.0)

    return make


def test_a_decision_is_made_on_the_window_the_curve_and_the_cluster(scene):
    case = scene()
    assert case.decide()
    assert case.decision is GROW
    ((_, inputs),) = case.advise.calls
    assert inputs["scaling"] == "curve"
    assert (inputs["reading"].tokens_per_s, inputs["reading"].window_s) == (100.0, 1185.0)
    context = inputs["context"]
    assert (context.free_gpus, context.others_waiting, context.trained_s) == (23, False, 1485.0)
    assert inputs["now"].timestamp() == STARTED_S + 1500.0


def test_decisions_are_spaced_by_the_setting(scene):
    case = scene()
    assert [case.decide(), case.train(until_s=1530.0).decide()] == [True, False]
    assert case.train(until_s=1560.0).decide()


def test_a_curve_is_searched_once_for_a_generation_of_the_spec(scene):
    case = scene()
    case.decide()
    case.train(until_s=1560.0).decide()
    assert len(case.scaling.calls) == 1
    case.edit(generation=2, resourceVersion="2")
    case.train(until_s=1620.0).decide()
    assert len(case.scaling.calls) == 2


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"change": {"elasticity": {"mode": "Off"}}}, 0),
        ({"change": {"launch": {"framework": "megatron"}}}, 0),
        ({"scaling": None}, 0),
        ({"advise": InputError("spec", value=1, remedy="is wrong")}, 1),
        ({"advise": ZeroDivisionError()}, 1),
    ],
    ids=["off", "cannot resume", "no-gpus", "wrong-plan", "fault"],
)
def test_a_plan_without_an_answer_has_no_decision(scene, options, asked, caplog):
    case = scene(**options)
    with caplog.at_level(logging.CRITICAL, "rightsizer.operator"):
        assert case.decide()
    assert (case.decision, len(case.advise.calls)) == (None, asked)


def test_a_plan_without_a_size_has_no_decision(scene):
    case = scene()
    case.plan = {name: value for name, value in case.plan.items() if name != "status"}
    case.edit(resourceVersion="2")
    assert case.decide()
    assert (case.decision, case.advise.calls) == (None, [])


@pytest.mark.parametrize("gone", ["measurements", "plan"])
def test_no_decision_is_due_for_a_plan_without_measurements_or_that_was_deleted(scene, gone):
    case = scene()
    if gone == "plan":
        case.cache.remove_plan(KEY)
    else:
        case.advisor.forget(KEY)
    assert not case.decide()


def test_unresponsive_workers_leave_the_marks_and_clear_the_progress(scene):
    case = scene()
    case.advisor.record(case.plan, None, at_s=case.now_s)
    assert case.advisor.progress(case.plan) is None
    assert case.decide()
    assert case.advisor.plans == {KEY}


SEEN = Reading(
    window_s=600.0, age_s=5.0, coverage=1.0, samples=41, gpus=1, phase=Phase.TRAINING, gpu_busy_max=0.5,
    gpu_busy_mean=0.4, tokens_per_s=100.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("counters", "why"),
    [
        ({"readings": Missing(reason="connection refused")}, "connection refused"),
        ({"at_s": 0.0}, "25m"),
        ({"at_s": 1490.0}, "not"),
        ({"at_s": 1490.0, "readings": {KEY: shown(dataclasses.replace(SEEN, samples=0))}}, "sample"),
    ],
    ids=["unavailable", "old", "not-queried", "incomplete"],
)
def test_missing_gpu_counters_keep_the_size_with_a_reason(scene, counters, why):
    case = scene()
    case.advisor.set_counters(Counters(awaited=True, **counters))
    assert case.decide()
    assert (case.decision.action, case.advise.calls) == (Action.KEEP, [])
    assert why in case.decision.missing.reason


def test_gpu_counters_fill_the_reading(scene):
    case = scene()
    case.advisor.set_counters(Counters(awaited=True, readings={KEY: SEEN}, at_s=1490.0))
    case.decide()
    assert case.advise.calls[0][1]["reading"].gpu_busy_max == 0.5


@pytest.mark.parametrize(
    ("status", "waiting"),
    [
        ({"conditions": [WAITS], "sizing": {"gpuType": "H100-SXM5-80GB"}}, True),
        ({"conditions": [WAITS], "sizing": {"gpuType": "A100-SXM4-80GB"}}, False),
        ({"conditions": [WAITS | {"reason": "Running"}], "sizing": {"gpuType": "H100-SXM5-80GB"}}, False),
        (None, False),
    ],
    ids=["waits", "waits-for-another-type", "runs", "new"],
)
def test_another_plan_that_waits_for_gpus_is_demand(scene, status, waiting):
    case = scene()
    metadata = case.plan["metadata"] | {"name": "other", "uid": "uid-2"}
    case.cache.set_plan({**case.plan, "metadata": metadata, "status": status})
    case.decide()
    assert case.advise.calls[0][1]["context"].others_waiting is waiting
