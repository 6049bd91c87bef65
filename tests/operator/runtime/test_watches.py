"""Which resources kopf watches, as the API server begins and ends to serve plans."""

import asyncio

import kopf
import pytest

from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.runtime.watches import follow_definition, new_insights, pass_on

JOBS = kopf.Resource("batch", "v1", "jobs")
PLANS = kopf.Resource("rightsizer.dev", "v1alpha1", "trainingplans")
OVERLOADED = ApiError(503, "overloaded")


def watched_after(*answers, at_first=()):
    """Whether plans are watched after each response of the API server."""

    async def scenario():
        insights, left, watched = new_insights(), list(answers), []
        insights.watched_resources.update({JOBS, *at_first})

        async def serves_plans():
            answer = left.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

        async def sleep(_):
            assert JOBS in insights.watched_resources
            watched.append(PLANS in insights.watched_resources)
            if not left:
                raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await follow_definition(insights, serves_plans, sleep=sleep)
        return watched

    return asyncio.run(scenario())


def test_plans_are_watched_while_the_api_server_serves_them():
    assert watched_after(False, True, True, False, True) == [False, True, True, False, True]


@pytest.mark.parametrize("at_first", [(), (PLANS,)], ids=["not watched", "watched"])
def test_an_unclear_response_of_the_api_server_changes_nothing(at_first):
    assert watched_after(OVERLOADED, OVERLOADED, at_first=at_first) == [bool(at_first)] * 2


def test_kopf_gets_each_change_once():
    async def scenario():
        insights, told, left = new_insights(), [], [True, True, False]

        async def listen():
            async with insights.revised:
                while True:
                    await insights.revised.wait()
                    told.append(PLANS in insights.watched_resources)

        async def serves_plans():
            return left.pop(0)

        async def sleep(_):
            for _ in range(3):
                await asyncio.sleep(0)
            if not left:
                raise asyncio.CancelledError

        listening = asyncio.create_task(listen())
        await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await follow_definition(insights, serves_plans, sleep=sleep)
        listening.cancel()
        return told

    assert asyncio.run(scenario()) == [True, False]


def test_kopf_keeps_only_its_own_fields_of_an_event():
    event = {
        "type": "MODIFIED",
        "object": {"metadata": {"name": "n1", "managedFields": [{}]}, "spec": {"a": 1}, "status": {}},
    }
    told = []
    pass_on(event, lambda raw, *, deleted: told.append((raw["spec"], deleted)))
    assert (told, event["object"]) == ([({"a": 1}, False)], {"metadata": {"name": "n1"}})
