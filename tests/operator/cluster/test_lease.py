import asyncio

import pytest

from rightsizer_operator.cluster.lease import hold


class Server:
    """A way to an API server; after so many answers one is no JSON."""

    def __init__(self, sound):
        self.left = sound

    async def call(self, method, _path, *, body=None, **_named):
        self.left -= 1
        if self.left == -1:
            raise ValueError("no JSON")
        return body or {}


@pytest.mark.parametrize("sound", [pytest.param(0, id="at first"), pytest.param(2, id="while acting")])
def test_an_election_that_fails_ends_the_operator(sound):
    async def held():
        act = asyncio.Event().wait
        await hold(Server(sound), name="lease", namespace="here", identity="me", act=act)

    with pytest.raises(ValueError, match="no JSON"):
        asyncio.run(asyncio.wait_for(held(), 5))
