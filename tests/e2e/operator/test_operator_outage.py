"""What is out of the operator's hands: the API server is away."""

import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
AWAY_S = 30


def test_training_goes_on_while_the_api_server_is_away(shared_run, cluster):
    shared_run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in shared_run.pods()}
    cluster.control("kill", "apiserver")
    away = time.time()
    time.sleep(AWAY_S)
    cluster.control("start", "apiserver")
    cluster.wait("the API server", lambda: len(cluster.ready_nodes()) == 3)
    back = time.time()
    shared_run.kubectl("scale", "tp", shared_run.name, "--replicas=3")
    shared_run.cluster.wait("the scale is seen", lambda: shared_run.status["attempt"]["gpus"] == 3)
    LOG.info(f"acted on a change {time.time() - back:.1f} s after the API server was back")
    shared_run.steps_with(3, after=back)
    meanwhile = [r for r, _ in shared_run.records() if away < r["time"] < away + AWAY_S]
    assert {r["event"] for r in meanwhile} <= {"step", "checkpoint"}
    assert meanwhile[-1]["time"] > away + AWAY_S - 20
    assert names < {pod["metadata"]["name"] for pod in shared_run.pods()}
    assert shared_run.jobs == [f"{shared_run.name}-a1"]
