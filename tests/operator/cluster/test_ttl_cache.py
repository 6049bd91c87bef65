import asyncio

import pytest

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
