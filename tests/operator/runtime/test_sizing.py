"""Sizing outside the event loop: the cache and the order with a stand-in, the limits with real processes."""

import asyncio
import contextlib

import pytest

from rightsizer_api import validate
from rightsizer_api.sizing import resolve
from rightsizer_api.state import State
from rightsizer_launch.bounded.fair_slots import FairSlots
from rightsizer_operator.reconcile.size import decide
from rightsizer_operator.reconcile.sizing_answer import (
    NotSizedYetError,
    SizingAnswer,
    SizingQuestion,
    answer,
    report_of,
)
from rightsizer_operator.runtime.sizing import Lane, Sizing, sizing_lanes
from rightsizer_operator.values.inventory import Inventory

KEY, OTHER = ("team", "demo"), ("team", "other")
GPU = "H100-SXM5-80GB"
HUGE = {
    "model": {"name": "deepseek-v3", "dimensions": None},
    "workload": {"tokens": "100B", "sequenceLength": 4096, "globalBatchSequences": 15360, "precision": None},
    "deadline": {"finishWithin": "30d"},
    "budget": {"maxUSD": 1000},
    "resources": {"minGPUs": None, "maxGPUs": None, "gpus": None, "gpusPerNode": None},
    "layout": None,
    "launch": {"framework": "custom"},
}  # minutes of processor time on any number of GPUs


def questions(cluster):
    """The questions that sizing this plan asks, in order."""
    asked = []

    def size(question):
        asked.append(question)
        return SizingAnswer(message="none") if len(asked) < 3 else answer(question)

    with contextlib.suppress(NotSizedYetError):
        decide(
            resolve(validate(cluster.plan)),
            inventory=Inventory(nodes=tuple(cluster.nodes)),
            now=cluster.now,
            created=cluster.now,
            size=size,
        )
    return asked


class Counting:
    """A stand-in for a pool that finishes when the test lets it."""

    def __init__(self, found):
        self.found, self.asked, self.let, self.slots = found, [], asyncio.Event(), FairSlots(1)

    @contextlib.asynccontextmanager
    async def turn(self, tenant):
        async with self.slots.turn(tenant):
            yield self.answer

    async def allowed(self):
        await self.let.wait()

    async def answer(self, asked):
        self.asked.append(asked[0])
        await self.allowed()
        return self.found

    def start(self):
        pass

    def close(self):
        pass


class OneByOne(Counting):
    """A stand-in for a pool that finishes one request each time the test lets it."""

    def __init__(self, found):
        super().__init__(found)
        self.lets = asyncio.Semaphore(0)

    async def allowed(self):
        await self.lets.acquire()


def lanes(*pools):
    return [Lane(pool=pool, budget_s=1.0) for pool in pools]


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("found", [SizingAnswer(message="none"), SizingAnswer(refusal="Invalid")])
def test_the_same_question_of_many_plans_is_searched_once_and_refusals_are_kept(fake_cluster, found):
    question = questions(fake_cluster())[0]

    async def scenario():
        searcher, told = Counting(found), []
        sizing = Sizing(lanes(searcher), budget_s=1.0)
        sizing.on_answer = told.append
        for key in (KEY, OTHER):
            with pytest.raises(NotSizedYetError):
                sizing.size_of(key)(question)
            sizing.ask(key, 1, question)
            sizing.ask(key, 1, question)  # it goes on already
        searcher.let.set()
        await settled()
        assert (searcher.asked, told) == ([question], [KEY, OTHER])
        assert sizing.size_of(KEY)(question) == found

    asyncio.run(scenario())


def test_a_result_requeues_every_waiting_plan_before_the_next_search(fake_cluster):
    first, second = (
        questions(fake_cluster({"workload": {"tokens": tokens}}))[0] for tokens in ("10M", "20M")
    )

    async def scenario():
        searcher, told = OneByOne(SizingAnswer(message="none")), []
        sizing = Sizing(lanes(searcher), budget_s=1.0)
        sizing.on_answer = told.append
        asked = {"a": first, "b": second, "c": first}
        for name, question in asked.items():
            sizing.ask(("team", name), 1, question)
        await settled()
        searcher.lets.release()
        await settled()
        assert (told, searcher.asked) == ([("team", "a"), ("team", "c")], [first, second])
        sizing.close()
        await settled()

    asyncio.run(scenario())


def test_beyond_all_budgets_a_question_is_refused_and_not_searched_again(fake_cluster):
    question = questions(fake_cluster())[0]

    async def scenario():
        quick, slow, told = Counting(None), Counting(None), []
        sizing = Sizing(lanes(quick, slow), budget_s=7.0)
        sizing.on_answer = told.append
        quick.let.set()
        sizing.ask(KEY, 1, question)
        await settled()
        with pytest.raises(NotSizedYetError) as waits:
            sizing.size_of(KEY)(question)
        assert (waits.value.long, told) == (True, [KEY])  # so that its status says so
        sizing.ask(OTHER, 1, question)
        slow.let.set()
        await settled()
        assert (len(quick.asked), len(slow.asked)) == (1, 1)
        assert "after 7 s of processor time" in sizing.size_of(OTHER)(question).message

    asyncio.run(scenario())


def test_a_size_holds_on_fewer_gpus_if_it_fits(fake_cluster):
    cluster = fake_cluster({"resources": {"gpus": None, "minGPUs": None, "maxGPUs": None}})
    asked = questions(cluster)[0]
    found = answer(asked)

    def fewer(gpus):
        return SizingQuestion(asked.request, most={GPU: gpus}, running=asked.running, elastic=asked.elastic)

    used = found.sized.gpus
    assert fewer(used).is_answered_by(found, asked)
    assert not fewer(used - 1).is_answered_by(found, asked)
    assert not fewer(asked.most[GPU] + 1).is_answered_by(found, asked)
    assert fewer(1).is_answered_by(SizingAnswer(message="none"), asked)


def test_the_start_of_a_sizing_is_kept_until_its_end_for_one_generation(fake_cluster):
    question = questions(fake_cluster())[0]

    async def scenario():
        sizing = Sizing(lanes(Counting(SizingAnswer())), budget_s=1.0)
        sizing.ask(KEY, 1, question)
        since = sizing.since(KEY, 1)
        assert (since is not None, sizing.since(KEY, 2), sizing.since(OTHER, 1)) == (True, None, None)
        sizing.forget(KEY)
        assert sizing.since(KEY, 1) is None
        sizing.close()
        await settled()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_real_process_gives_the_same_result_and_ends_slow_calls(fake_cluster):
    quick, slow = sizing_lanes(1.0)
    small, huge = questions(fake_cluster())[0], questions(fake_cluster(HUGE))[-1]

    async def within(lane, question):
        async with lane.pool.turn("team") as call:
            return await call((question, lane.budget_s))

    async def scenario():
        assert await within(slow, small) == answer(small)
        assert await within(slow, huge) is None
        assert await within(slow, small) == answer(small)  # the same process goes on
        assert await within(quick, huge) is None

    try:
        asyncio.run(scenario())
    finally:
        quick.pool.close()
        slow.pool.close()


def test_a_fault_of_the_search_is_raised_where_the_plan_is_reconciled(fake_cluster):
    question = questions(fake_cluster())[0]
    with pytest.raises(RuntimeError, match="IndexError"):
        report_of(lambda _: SizingAnswer(message="IndexError: x", refusal=State.FAULT), question)
