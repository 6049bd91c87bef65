import asyncio

import pytest

from rightsizer_operator.cluster.backoff import Backoff
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.cluster.relist import retry_when_busy

AT_ONCE = Backoff(first_s=0.0, longest_s=0.0)


def reader(*answers):
    """A read that returns or raises these results in turn."""
    left = list(answers)

    async def read():
        answer = left.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    return read


def test_a_list_is_retried_while_the_api_server_is_overloaded():
    busy = (ApiError(429, "later", retry_after_s=0.01), ApiError(503, "later"))
    assert asyncio.run(retry_when_busy(reader(*busy, "listed"), backoff=AT_ONCE, retries=2)) == "listed"


@pytest.mark.parametrize("status", [403, 0, 429], ids=["forbidden", "unavailable", "overloaded for too long"])
def test_other_errors_and_exhausted_retries_are_raised(status):
    with pytest.raises(ApiError):
        asyncio.run(
            retry_when_busy(
                reader(ApiError(status, "no"), ApiError(status, "no")), backoff=AT_ONCE, retries=1
            )
        )
