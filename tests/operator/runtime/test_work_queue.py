import asyncio

from rightsizer_operator.runtime.work_queue import WorkQueue

RUNNING, NEW = [("team", f"r{i}") for i in range(8)], [("team", f"n{i}") for i in range(8)]


def taken(turns, count):
    async def take():
        keys = [await turns.take() for _ in range(count)]
        for key in keys:
            turns.done(key)
        return keys

    return asyncio.run(asyncio.wait_for(take(), 5))


def pushed(running=(), new=()):
    waiting = []
    turns = WorkQueue(waiting.append)
    for key in running:
        turns.push(key, asked=False)
    for key in new:
        turns.push(key, asked=True)
    return turns, waiting


def test_what_people_ask_goes_first_and_the_rest_still_moves():
    turns, _ = pushed(RUNNING, NEW)
    assert taken(turns, 8) == [*NEW[:3], RUNNING[0], *NEW[3:6], RUNNING[1]]


def test_being_named_twice_is_one_turn():
    turns, waiting = pushed([*RUNNING[:1], *RUNNING[:1]], NEW[:1])
    assert waiting[-1] == 2
    assert taken(turns, 2) == [NEW[0], RUNNING[0]]
    assert waiting[-1] == 0


def test_a_plan_that_is_edited_while_it_waits_goes_to_the_front():
    turns, _ = pushed(RUNNING, RUNNING[5:6])
    assert taken(turns, 2) == [RUNNING[5], RUNNING[0]]


def test_one_that_is_looked_at_has_another_turn_only_after_that():
    turns, waiting = pushed(new=NEW[:1])

    async def twice():
        key = await turns.take()
        turns.push(key, asked=True)
        assert waiting[-1] == 0
        turns.done(key)
        return await turns.take()

    assert asyncio.run(asyncio.wait_for(twice(), 5)) == NEW[0]


def test_after_clearing_nobody_waits():
    turns, waiting = pushed(RUNNING, NEW)
    turns.clear()
    turns.push(NEW[0], asked=True)
    assert (waiting[-1], taken(turns, 1)) == (1, NEW[:1])
