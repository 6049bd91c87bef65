import asyncio

from rightsizer_operator.cache import Cache
from rightsizer_operator.door import ApiError
from rightsizer_operator.names import GPU_RESOURCE
from rightsizer_operator.surroundings import Surroundings

POD = {"spec": {"nodeName": "n1", "containers": [{"resources": {"limits": {GPU_RESOURCE: "3"}}}]}}
QUOTA = {"status": {"hard": {f"requests.{GPU_RESOURCE}": "8"}, "used": {f"requests.{GPU_RESOURCE}": "6"}}}
KEY = ("team", "demo")


class Door:
    """Lists pods and quotas, each refused once; there is no Kueue."""

    def __init__(self):
        self.asked = []

    async def every(self, path, **_query):
        self.asked.append(path.rpartition("/")[2])
        if self.asked.count(self.asked[-1]) == 1:
            raise ApiError(429, "later")
        yield {"pods": POD, "resourcequotas": QUOTA}[self.asked[-1]]

    async def call(self, _method, _path):
        raise ApiError(404, "no Kueue")


def test_plans_that_are_sized_together_share_what_a_busy_api_server_says_at_last():
    door, cache = Door(), Cache()

    async def ask():
        around = Surroundings(door, cache)
        await asyncio.gather(*(around.count_others() for _ in range(4)))
        return await asyncio.gather(*(around.quota(KEY) for _ in range(4)))

    assert asyncio.run(ask()) == [2] * 4
    assert (cache.bound, sorted(door.asked)) == ({"n1": 3}, ["pods"] * 2 + ["resourcequotas"] * 2)
