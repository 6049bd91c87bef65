import asyncio

import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.ttl_cache import TTLCache


class Source:
    """Counts its reads; the test sets its clock."""

    def __init__(self):
        self.reads, self.now = 0, 100.0
        self.cache = TTLCache(self.read, clock=lambda: self.now)

    async def read(self):
        await asyncio.sleep(0)
        self.reads += 1
        return self.reads

    def get(self):
        return self.cache.get(max_age_s=5.0)


def test_concurrent_callers_share_one_read():
    source = Source()

    async def ask():
        return await asyncio.gather(*(source.get() for _ in range(8)))

    assert asyncio.run(ask()) == [1] * 8


def test_a_value_in_use_is_refreshed_before_it_expires_without_a_wait():
    source = Source()

    async def ask():
        got = [await source.get()]
        for age_s in (3.9, 0.2, 0.0):
            source.now += age_s
            got.append(await source.get())
        await asyncio.sleep(0.01)
        return [*got, await source.get()]

    assert asyncio.run(ask()) == [1, 1, 1, 1, 2]
    assert source.reads == 2


def test_an_early_read_that_fails_leaves_the_value_until_it_expires():
    source = Source()

    async def fail():
        raise ApiError(503, "busy")

    async def ask():
        await source.get()
        source.now += 4.5
        source.cache._read = fail
        await source.get()
        await asyncio.sleep(0.01)
        assert await source.get() == 1
        source.now += 0.5
        with pytest.raises(ApiError):
            await source.get()

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("age_s", "invalidated", "reads"),
    [(4.9, False, 1), (5.0, False, 2), (0.9, True, 1), (1.1, True, 2)],
    ids=["fresh", "expired", "invalidated just now", "invalidated"],
)
def test_a_value_is_cached_until_it_expires_or_is_invalidated(age_s, invalidated, reads):
    source = Source()

    async def ask():
        await source.get()
        source.now += age_s
        if invalidated:
            source.cache.invalidate()
        return await source.get()

    assert asyncio.run(ask()) == reads


def test_a_failed_read_is_retried_by_the_next_caller():
    tries = []

    async def read():
        tries.append(len(tries))
        if len(tries) == 1:
            raise OSError("away")
        return "read"

    async def ask():
        cache = TTLCache(read)
        with pytest.raises(OSError, match="away"):
            await cache.get(max_age_s=5.0)
        return await cache.get(max_age_s=5.0)

    assert asyncio.run(ask()) == "read"
