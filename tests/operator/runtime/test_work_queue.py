import asyncio

from rightsizer_operator.runtime.work_queue import WorkQueue

RUNNING, NEW = [("team", f"r{i}") for i in range(8)], [("team", f"n{i}") for i in range(8)]


def process(queue, count):
    async def drain():
        keys = [await queue.get() for _ in range(count)]
        for key in keys:
            queue.done(key)
        return keys

    return asyncio.run(asyncio.wait_for(drain(), 5))


def filled(running=(), new=()):
    lengths = []
    queue = WorkQueue(lengths.append)
    for key in running:
        queue.add(key, high=False)
    for key in new:
        queue.add(key, high=True)
    return queue, lengths


def test_high_priority_keys_come_first_and_low_priority_keys_do_not_starve():
    queue, _ = filled(RUNNING, NEW)
    assert process(queue, 8) == [*NEW[:3], RUNNING[0], *NEW[3:6], RUNNING[1]]


def test_a_key_that_is_added_twice_is_queued_once():
    queue, lengths = filled([*RUNNING[:1], *RUNNING[:1]], NEW[:1])
    assert lengths[-1] == 2
    assert process(queue, 2) == [NEW[0], RUNNING[0]]
    assert lengths[-1] == 0


def test_a_queued_key_that_is_added_with_high_priority_moves_to_the_front():
    queue, _ = filled(RUNNING, RUNNING[5:6])
    assert process(queue, 2) == [RUNNING[5], RUNNING[0]]


def test_a_key_that_is_added_while_it_is_processed_is_queued_again_when_it_is_done():
    queue, lengths = filled(new=NEW[:1])

    async def twice():
        key = await queue.get()
        queue.add(key, high=True)
        assert lengths[-1] == 0
        queue.done(key)
        return await queue.get()

    assert asyncio.run(asyncio.wait_for(twice(), 5)) == NEW[0]


def test_a_cleared_queue_is_empty():
    queue, lengths = filled(RUNNING, NEW)
    queue.clear()
    queue.add(NEW[0], high=True)
    assert (lengths[-1], process(queue, 1)) == (1, NEW[:1])
