import asyncio

import pytest

from rightsizer_operator.cluster.ttl_cache import TTLCache


class Source:
    """Counts how often it is read; its clock is turned by hand."""

    def __init__(self):
        self.reads, self.now = 0, 100.0
        self.shared = TTLCache(self.read, clock=lambda: self.now)

    async def read(self):
        await asyncio.sleep(0)
        self.reads += 1
        return self.reads

    def get(self):
        return self.shared.get(within_s=5.0)


def test_who_asks_at_the_same_time_shares_one_reading():
    source = Source()

    async def ask():
        return await asyncio.gather(*(source.get() for _ in range(8)))

    assert asyncio.run(ask()) == [1] * 8


@pytest.mark.parametrize(
    ("age_s", "changed", "reads"),
    [(4.9, False, 1), (5.0, False, 2), (0.9, True, 1), (1.1, True, 2)],
    ids=["young", "old", "changed just now", "changed"],
)
def test_a_reading_serves_until_it_is_old_or_something_has_changed(age_s, changed, reads):
    source = Source()

    async def ask():
        await source.get()
        source.now += age_s
        if changed:
            source.shared.forget()
        return await source.get()

    assert asyncio.run(ask()) == reads


def test_a_reading_that_fails_is_made_again_by_the_next():
    tries = []

    async def read():
        tries.append(len(tries))
        if len(tries) == 1:
            raise OSError("away")
        return "read"

    async def ask():
        shared = TTLCache(read)
        with pytest.raises(OSError, match="away"):
            await shared.get(within_s=5.0)
        return await shared.get(within_s=5.0)

    assert asyncio.run(ask()) == "read"
