import asyncio

import pytest

from rightsizer_operator.runtime.at_once import all_of


def test_all_are_awaited_and_the_first_error_is_raised():
    ended = []

    async def step(name, error=None):
        await asyncio.sleep(0)
        ended.append(name)
        if error:
            raise error

    with pytest.raises(KeyError, match="b"):
        asyncio.run(all_of(step("a"), step("b", KeyError("b")), step("c", ValueError("c")), step("d")))
    assert ended == ["a", "b", "c", "d"]


def test_a_single_awaitable_is_awaited_directly():
    async def fail():
        raise KeyError("it")

    with pytest.raises(KeyError, match="it"):
        asyncio.run(all_of(fail()))
