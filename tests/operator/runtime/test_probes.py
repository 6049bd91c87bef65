"""The probes and /metrics over HTTP, on a port of this machine."""

import asyncio
import time
from types import SimpleNamespace

import aiohttp
import pytest

from rightsizer_launch.worker.rendezvous import free_port
from rightsizer_operator.cluster.client import ApiError
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.probes import serving


def answers(*paths, is_leader=True, relist_age_s=0.0, served=True):
    """Status and body of each path, while the last relist is that old and may be 60 s old.

    `served`: whether the API server knows plans; None: it does not answer.
    """

    async def serves_plans():
        if served is None:
            raise ApiError(503, "overloaded")
        return served

    controller = SimpleNamespace(
        is_leader=is_leader, last_relist_s=time.monotonic() - relist_age_s, serves_plans=serves_plans
    )
    port = free_port()

    async def ask():
        async with (
            serving(controller, Metrics(), port=port, max_relist_age_s=60.0),
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        ):
            found = []
            for path in paths:
                async with session.get(path) as response:
                    found.append((response.status, await response.text()))
            return found

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("is_leader", "relist_age_s", "status", "text"),
    [
        (True, 0.0, 200, "ok\n"),
        (True, 90.0, 500, "the last relist was 90 s ago\n"),
        (False, 90.0, 200, "ok\n"),
    ],
    ids=["leads", "leads and no longer lists", "waits for the lease"],
)
def test_a_leader_that_no_longer_lists_is_unhealthy(is_leader, relist_age_s, status, text):
    answered = answers("/healthz", "/readyz", is_leader=is_leader, relist_age_s=relist_age_s)
    assert answered == [(status, text)] * 2


def test_without_the_definition_of_plans_it_is_alive_and_not_ready():
    (alive, _), (ready, text) = answers("/healthz", "/readyz", served=False)
    assert (alive, ready) == (200, 503)
    assert "CustomResourceDefinition of TrainingPlans is missing" in text


def test_an_unresponsive_api_server_leaves_it_ready():
    assert answers("/readyz", served=None) == [(200, "ok\n")]


def test_metrics_are_served_whole_or_by_name():
    (_, every), (_, named) = answers("/metrics", "/metrics?name[]=rightsizer_operator_queue")
    samples = [line for line in named.splitlines() if not line.startswith("#")]
    assert samples == ["rightsizer_operator_queue 0.0"]
    assert samples[0] in every
    assert "rightsizer_plans{" in every
