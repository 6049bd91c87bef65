"""What is out of the operator's hands: the API server is away."""

import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
AWAY_S = 60


def test_training_goes_on_while_the_api_server_is_away(veteran, cluster):
    veteran.steps_with(2)
    names = {pod["metadata"]["name"] for pod in veteran.pods()}
    cluster.control("kill", "apiserver")
    away = time.time()
    time.sleep(AWAY_S)
    cluster.control("start", "apiserver")
    cluster.wait("the API server", lambda: len(cluster.ready_nodes()) == 3)
    back = time.time()
    veteran.kubectl("scale", "tp", veteran.name, "--replicas=3")
    veteran.cluster.wait("the scale is seen", lambda: veteran.status["attempt"]["gpus"] == 3)
    LOG.info(f"acted on a change {time.time() - back:.1f} s after the API server was back")
    veteran.steps_with(3, after=back)
    meanwhile = [r for r, _ in veteran.records() if away < r["time"] < away + AWAY_S]
    assert {r["event"] for r in meanwhile} <= {"step", "checkpoint"}
    assert meanwhile[-1]["time"] > away + AWAY_S - 20
    assert names < {pod["metadata"]["name"] for pod in veteran.pods()}
    assert veteran.jobs == [f"{veteran.name}-a1"]
