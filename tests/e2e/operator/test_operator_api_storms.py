"""An API server that refuses, contradicts or falls silent; two operators at once."""

import logging
import signal
import time
import uuid

import pytest
from aiohttp import web
from apiproxy import CUT, storm
from life import SimulatedRun

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
QUICK = {"refresh_s": 4.0, "retry_s": 2.0}
STORM_S = 300  # where ten attempts in a row are refused, the next ones come a minute apart
UNTOUCHED = {"observedGeneration": -1}  # the default of the CRD


@pytest.fixture
def life(alone, namespace):
    """A plan in a namespace of its own."""
    yield SimulatedRun(alone.api, namespace, f"p{uuid.uuid4().hex[:6]}")
    alone.end_all()


def _leading(operators, **settings):
    operators.delete_lease()
    return operators.operator(**settings).start()


def _told(operator, metric):
    lines = operator.get("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(metric))


STORMS = {
    "429-half-of-all": storm(0.5, 429, retry_after_s=1),
    "409-half-of-writes": storm(0.5, 409, writes_only=True),
    "503-half-of-all": storm(0.5, 503),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", STORMS)
def test_a_storm_of_refusals_delays_and_changes_nothing(alone, life, name):
    operator = _leading(alone)
    operator.proxy.before = STORMS[name]
    began = time.monotonic()
    life.create()
    life.until("Running", within_s=STORM_S)
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2, within_s=STORM_S)
    life.edit(workload={"tokens": "90M"})
    life.until("Running", attempt=2, gpus=2, within_s=STORM_S)
    refused = [seen for seen in operator.proxy.log if seen.status in {409, 429, 503}]
    took_s = time.monotonic() - began
    LOG.info(f"{took_s:.1f} s, {len(operator.proxy.log)} requests, {len(refused)} of them refused")
    assert refused
    assert len(operator.proxy.log) / took_s < 50
    assert _told(operator, "rightsizer_operator_api_errors_total") > 0


def test_watches_that_fall_silent_are_noticed(alone, life):
    operator = _leading(alone, **QUICK)
    life.create()
    life.until("Running")
    operator.proxy.mute = True
    began = time.monotonic()
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2)
    LOG.info(f"done {time.monotonic() - began:.1f} s after the edit that no watch told")
    assert operator.get("/healthz")[0] == 200


def test_liveness_fails_when_nothing_can_be_read(alone, life):
    operator = _leading(alone, **QUICK)
    life.create()
    life.until("Running")
    nothing = lambda seen: None if "/leases" in seen.path else web.Response(status=503)
    operator.proxy.before = nothing
    life.wait("liveness fails", lambda: operator.get("/healthz")[0] == 500, 60)
    operator.proxy.before = lambda _seen: None
    life.wait("liveness is back", lambda: operator.get("/healthz")[0] == 200, 60)


def _writers(first, second):
    return [len(operator.proxy.writes) for operator in (first, second)]


def test_of_two_operators_one_acts_and_one_that_was_stopped_does_not_write_again(alone, life):
    first = _leading(alone)
    life.create()
    life.until("Running")
    second = alone.operator().start()
    stopped = []

    def stop(seen):
        """Stop the leader in a resize, after its journal is written; the response waits for it."""
        if seen.what == "PATCH trainingplans/status" and not stopped:
            stopped.append(time.monotonic())
            first.signal(signal.SIGSTOP)

    assert _writers(first, second)[1] == 0
    first.proxy.after = stop
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2)
    LOG.info(f"the other one had done it {time.monotonic() - stopped[0]:.1f} s after the leader stopped")
    life.edit(resources={"gpus": 1})
    before = _writers(first, second)
    assert before[1] > 0
    first.signal(signal.SIGCONT)
    life.until("Running")
    time.sleep(6)  # longer than it goes on trying to renew
    life.edit(resources={"gpus": 3})
    life.until("Running", gpus=3)
    assert _writers(first, second)[0] == before[0]
    second.kill()
    life.edit(resources={"gpus": 1})
    life.until("Running")
    assert _writers(first, second)[0] > before[0]


def test_a_write_whose_response_is_lost_is_made_once(alone, life):
    lost = []
    operator = _leading(alone)

    def lose(seen):
        if seen.writes and seen.what not in lost:
            lost.append(seen.what)
            return CUT
        return None

    operator.proxy.after = lose
    life.create()
    life.until("Running")
    life.edit(resources={"gpus": 2})
    life.until("Running", gpus=2)
    assert {"PATCH jobs", "PATCH services", "PATCH trainingplans/status", "POST events"} <= set(lost)
    assert len(life.now["status"]["resizes"]) == 1


def test_a_dry_run_logs_its_actions_and_changes_nothing(alone, life):
    operator = alone.operator(dry_run=True).start()
    life.create()
    life.wait("its words", lambda: "dry run: apply Job" in operator.words, 180)
    assert all(seen.dry for seen in operator.proxy.writes)
    assert life.jobs == []
    assert life.now["status"] == UNTOUCHED


def test_an_operator_of_one_namespace_leaves_the_others_alone(alone, life, neighbour):
    alone.delete_lease()
    operator = alone.operator(namespaces=(neighbour,)).start()
    other = SimulatedRun(alone.api, neighbour, "other")
    life.create()
    other.create()
    other.until("Running")
    assert life.now["status"] == UNTOUCHED
    asked = [seen.path for seen in operator.proxy.log if "/leases" not in seen.path]
    assert not any(f"/namespaces/{life.namespace}" in path or path.endswith("v1/jobs") for path in asked)
