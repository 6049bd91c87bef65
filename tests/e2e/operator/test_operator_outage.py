"""What is out of the operator's hands: the API server is away, a node loses its power."""

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


def test_a_node_that_loses_its_power_is_survived_within_bounds(veteran, cluster):
    """No FIN, no RST: peers hear nothing at all, for ever."""
    workers = len(veteran.pods())
    veteran.steps_with(workers)
    stores = {pod["spec"]["nodeName"] for pod in veteran.pods("rendezvous")}
    held = {pod["spec"]["nodeName"] for pod in veteran.pods()}
    node = min(held - stores)
    step, *_ = veteran.last()
    cluster.control("node-cut", node.removeprefix("n"))
    began = time.time()
    try:
        cluster.wait(
            "a replacement elsewhere",
            lambda: sum(p["spec"].get("nodeName", node) != node for p in veteran.pods()) == workers,
            within_s=240,
        )
        bound_s = time.time() - began
        resumed, _, when = veteran.steps_with(workers, after=time.time(), within_s=300)
        LOG.info(f"replaced after {bound_s:.1f} s, a step after {when - began:.1f} s; {step} -> {resumed}")
        assert resumed > 1
        assert veteran.status["attempt"]["number"] == 1
    finally:
        cluster.control("node-join", node.removeprefix("n"))
    cluster.wait("the node again", lambda: node in cluster.ready_nodes(), within_s=120)
