import asyncio
import contextlib

from rightsizer_operator.runtime.turns import Turns


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
        turns, order = Turns(), []
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
        assert not turns._waiting
        return order

    return asyncio.run(scenario())


def test_namespaces_take_turns_however_many_of_one_wait():
    order = served(("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("b", "b2"))
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_who_comes_during_a_turn_of_another_namespace_waits_for_that_turn_only():
    order = served(("first", "f1"), ("first", "f2"), ("b", "b1"), ("c", "c1"))
    assert order == ["b1", "c1", "f1", "f2"]


def test_a_waiter_that_goes_is_passed_over():
    assert served(("a", "a1"), ("a", "a2"), ("b", "b1"), cancelled=["a1", "b1"]) == ["a2"]


def test_a_waiter_that_goes_as_its_turn_comes_passes_it_on():
    async def scenario():
        turns, order = Turns(), []
        async with turns.turn("first"):
            goes = asyncio.create_task(holding(turns, order, "a", "a1"))
            comes = asyncio.create_task(holding(turns, order, "b", "b1"))
            await settled()
        goes.cancel()  # its turn has come; it has not run yet
        await asyncio.gather(goes, comes, return_exceptions=True)
        return order

    assert asyncio.run(scenario()) == ["b1"]
