import asyncio
import contextlib

import pytest

from rightsizer_launch.bounded.fair_slots import FairSlots


@pytest.mark.parametrize(
    ("slots", "order"),
    [(1, ["a1", "b1", "c1", "a2", "b2", "a3"]), (2, ["a1", "b1", "c1", "a2", "b2", "a3"])],
    ids=["one slot", "two slots"],
)
def test_users_take_turns(slots: int, order: list[str]) -> None:
    began: list[str] = []

    async def work(fair: FairSlots, user: int, name: str) -> None:
        async with fair.turn(user):
            began.append(name)
            await asyncio.sleep(0)

    async def main() -> None:
        fair = FairSlots(slots)
        jobs = [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (2, "b2"), (3, "c1")]
        await asyncio.gather(*(work(fair, user, name) for user, name in jobs))
        assert fair.waiting(1) == 0

    asyncio.run(main())
    assert began == order


@pytest.mark.parametrize("tenant", [1, 2], ids=["of the same user", "of another"])
def test_a_waiting_call_gets_a_slot_when_earlier_ones_are_cancelled_at_once(tenant) -> None:
    """The first of them has just been granted its slot; none has had the time to leave."""

    async def main() -> list[str]:
        fair, served = FairSlots(1), []
        async with fair.turn(1):
            leaving = [asyncio.create_task(holding(fair, served, 1, f"left {n}")) for n in range(3)]
            await settled()
            last = asyncio.create_task(holding(fair, served, tenant, "last"))
            await settled()
        for task in leaving:
            task.cancel()
        done = await asyncio.gather(*leaving, return_exceptions=True)
        assert [type(error) for error in done] == [asyncio.CancelledError] * 3
        await asyncio.wait_for(last, timeout=5)
        return served

    assert asyncio.run(main()) == ["last"]


def test_a_user_has_one_slot_and_a_fault_frees_it() -> None:
    async def main() -> None:
        fair = FairSlots(4)
        running = asyncio.Event()

        async def broken() -> None:
            async with fair.turn(1):
                running.set()
                await asyncio.sleep(0.05)
                raise ValueError

        first, second = asyncio.create_task(broken()), asyncio.create_task(broken())
        await running.wait()
        assert fair.waiting(1) == 1
        done = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(error) for error in done] == [ValueError, ValueError]

    asyncio.run(main())


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def holding(turns, served, namespace, name):
    async with turns.turn(namespace):
        served.append(name)
        await asyncio.sleep(0)


def served(*asked, cancelled=()):
    """The order in which (namespace, name) are served while the lock is held at first."""

    async def scenario():
        turns, order = FairSlots(1), []
        async with turns.turn("first"):
            tasks = {
                name: asyncio.create_task(holding(turns, order, namespace, name)) for namespace, name in asked
            }
            await settled()
            for name in cancelled:
                tasks[name].cancel()
            await settled()
        with contextlib.suppress(asyncio.CancelledError):
            for task in tasks.values():
                await task
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert not turns._queues
        return order

    return asyncio.run(scenario())


def test_namespaces_take_turns_however_many_of_one_wait():
    order = served(("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2"))
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_call_during_another_namespace_s_turn_waits_for_that_turn_only():
    order = served(("first", "f1"), ("first", "f2"), ("b", "b1"), ("c", "c1"))
    assert order == ["b1", "c1", "f1", "f2"]


def test_a_waiter_that_goes_is_passed_over():
    assert served(("a", "a1"), ("a", "a2"), ("b", "b1"), cancelled=["a1", "b1"]) == ["a2"]


def test_a_waiter_that_goes_as_its_turn_comes_passes_it_on():
    async def scenario():
        turns, order = FairSlots(1), []
        async with turns.turn("first"):
            goes = asyncio.create_task(holding(turns, order, "a", "a1"))
            comes = asyncio.create_task(holding(turns, order, "b", "b1"))
            await settled()
        goes.cancel()  # its turn has come; it has not run yet
        await asyncio.gather(goes, comes, return_exceptions=True)
        return order

    assert asyncio.run(scenario()) == ["b1"]
