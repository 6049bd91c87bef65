"""Sizing outside the event loop: the cache and the order with a stand-in, the limits with real processes."""

import asyncio
import contextlib

import pytest

from rightsizer_api import validate
from rightsizer_api.sizing import resolve
from rightsizer_api.state import State
from rightsizer_launch.bounded.fair_slots import FairSlots
from rightsizer_operator.reconcile.size import decide
from rightsizer_operator.reconcile.sizing_response import (
    NotSizedYetError,
    SizeRequest,
    SizeResponse,
    report_of,
    respond,
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


def size_requests(cluster):
    """The questions that sizing this plan asks, in order."""
    asked = []

    def size(size_request):
        asked.append(size_request)
        return SizeResponse(message="none") if len(asked) < 3 else respond(size_request)

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
            yield self.respond

    async def allowed(self):
        await self.let.wait()

    async def respond(self, asked):
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


@pytest.mark.parametrize("found", [SizeResponse(message="none"), SizeResponse(refusal="Invalid")])
def test_the_same_question_of_many_plans_is_searched_once_and_refusals_are_kept(fake_cluster, found):
    size_request = size_requests(fake_cluster())[0]

    async def scenario():
        searcher, told = Counting(found), []
        sizing = Sizing(lanes(searcher), budget_s=1.0)
        sizing.on_response = told.append
        for key in (KEY, OTHER):
            with pytest.raises(NotSizedYetError):
                sizing.size_of(key)(size_request)
            sizing.ask(key, 1, size_request)
            sizing.ask(key, 1, size_request)  # it goes on already
        searcher.let.set()
        await settled()
        assert (searcher.asked, told) == ([size_request], [KEY, OTHER])
        assert sizing.size_of(KEY)(size_request) == found

    asyncio.run(scenario())


def test_a_result_requeues_every_waiting_plan_before_the_next_search(fake_cluster):
    first, second = (
        size_requests(fake_cluster({"workload": {"tokens": tokens}}))[0] for tokens in ("10M", "20M")
    )

    async def scenario():
        searcher, told = OneByOne(SizeResponse(message="none")), []
        sizing = Sizing(lanes(searcher), budget_s=1.0)
        sizing.on_response = told.append
        asked = {"a": first, "b": second, "c": first}
        for name, size_request in asked.items():
            sizing.ask(("team", name), 1, size_request)
        await settled()
        searcher.lets.release()
        await settled()
        assert (told, searcher.asked) == ([("team", "a"), ("team", "c")], [first, second])
        sizing.close()
        await settled()

    asyncio.run(scenario())


def test_beyond_all_budgets_a_question_is_refused_and_not_searched_again(fake_cluster):
    size_request = size_requests(fake_cluster())[0]

    async def scenario():
        quick, slow, told = Counting(None), Counting(None), []
        sizing = Sizing(lanes(quick, slow), budget_s=7.0)
        sizing.on_response = told.append
        quick.let.set()
        sizing.ask(KEY, 1, size_request)
        await settled()
        with pytest.raises(NotSizedYetError) as waits:
            sizing.size_of(KEY)(size_request)
        assert (waits.value.long, told) == (True, [KEY])  # so that its status says so
        sizing.ask(OTHER, 1, size_request)
        slow.let.set()
        await settled()
        assert (len(quick.asked), len(slow.asked)) == (1, 1)
        assert "after 7 s of processor time" in sizing.size_of(OTHER)(size_request).message

    asyncio.run(scenario())


def test_a_size_holds_on_fewer_gpus_if_it_fits(fake_cluster):
    cluster = fake_cluster({"resources": {"gpus": None, "minGPUs": None, "maxGPUs": None}})
    asked = size_requests(cluster)[0]
    found = respond(asked)

    def fewer(gpus):
        return SizeRequest(asked.request, most={GPU: gpus}, running=asked.running, elastic=asked.elastic)

    used = found.sized.gpus
    assert fewer(used).is_met_by(found, asked)
    assert not fewer(used - 1).is_met_by(found, asked)
    assert not fewer(asked.most[GPU] + 1).is_met_by(found, asked)
    assert fewer(1).is_met_by(SizeResponse(message="none"), asked)


def test_the_start_of_a_sizing_is_kept_until_its_end_for_one_generation(fake_cluster):
    size_request = size_requests(fake_cluster())[0]

    async def scenario():
        sizing = Sizing(lanes(Counting(SizeResponse())), budget_s=1.0)
        sizing.ask(KEY, 1, size_request)
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
    small, huge = size_requests(fake_cluster())[0], size_requests(fake_cluster(HUGE))[-1]

    async def within(lane, size_request):
        async with lane.pool.turn("team") as call:
            return await call((size_request, lane.budget_s))

    async def scenario():
        assert await within(slow, small) == respond(small)
        assert await within(slow, huge) is None
        assert await within(slow, small) == respond(small)  # the same process goes on
        assert await within(quick, huge) is None

    try:
        asyncio.run(scenario())
    finally:
        quick.pool.close()
        slow.pool.close()


def test_a_fault_of_the_search_is_raised_where_the_plan_is_reconciled(fake_cluster):
    size_request = size_requests(fake_cluster())[0]
    with pytest.raises(RuntimeError, match="IndexError"):
        report_of(lambda _: SizeResponse(message="IndexError: x", refusal=State.FAULT), size_request)
