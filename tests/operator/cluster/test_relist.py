import asyncio

import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.relist import retry_when_busy


def reader(*answers):
    """A part that answers so, one after the other."""
    left = list(answers)

    async def read():
        answer = left.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    return read


def test_a_part_that_a_busy_api_server_refuses_is_asked_for_again():
    busy = (ApiError(429, "later", retry_after_s=0.01), ApiError(503, "later"))
    assert asyncio.run(retry_when_busy(reader(*busy, "there"), waits_s=(0.0, 0.0))) == "there"


@pytest.mark.parametrize("status", [403, 0, 429], ids=["not granted", "not there", "busy for too long"])
def test_other_refusals_and_too_many_of_them_are_told(status):
    with pytest.raises(ApiError):
        asyncio.run(retry_when_busy(reader(ApiError(status, "no"), ApiError(status, "no")), waits_s=(0.0,)))
