import asyncio

import pytest

from rightsizer_operator.runtime.leader import run_elected


class InvalidJsonClient:
    """A client whose responses are invalid JSON after the first `valid` ones."""

    def __init__(self, valid):
        self.left = valid

    async def call(self, method, _path, *, body=None, **_named):
        self.left -= 1
        if self.left == -1:
            raise ValueError("invalid JSON")
        return body or {}


@pytest.mark.parametrize("valid", [pytest.param(0, id="at first"), pytest.param(2, id="while leading")])
def test_an_election_that_fails_ends_the_operator(valid):
    async def run():
        lead = asyncio.Event().wait
        await run_elected(InvalidJsonClient(valid), name="lease", namespace="here", identity="me", lead=lead)

    with pytest.raises(ValueError, match="invalid JSON"):
        asyncio.run(asyncio.wait_for(run(), 5))
