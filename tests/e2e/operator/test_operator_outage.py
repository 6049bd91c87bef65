"""What is out of the operator's hands: the API server is away, a node loses its power."""

import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
AWAY_S = 60


def test_training_goes_on_while_the_api_server_is_away(start, cluster):
    run = start()
    run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in run.pods()}
    cluster.control("kill", "apiserver")
    away = time.time()
    time.sleep(AWAY_S)
    cluster.control("start", "apiserver")
    cluster.wait("the API server", lambda: len(cluster.ready_nodes()) == 3)
    back = time.time()
    run.kubectl("scale", "tp", run.name, "--replicas=3")
    run.cluster.wait("the scale is seen", lambda: run.status["attempt"]["gpus"] == 3)
    LOG.info(f"acted on a change {time.time() - back:.1f} s after the API server was back")
    run.steps_with(3, after=back)
    meanwhile = [r for r, _ in run.records() if away < r["time"] < away + AWAY_S]
    assert {r["event"] for r in meanwhile} <= {"step", "checkpoint"}
    assert meanwhile[-1]["time"] > away + AWAY_S - 20
    assert names < {pod["metadata"]["name"] for pod in run.pods()}
    assert run.jobs == [f"{run.name}-a1"]


def test_a_node_that_loses_its_power_is_survived_within_bounds(start, cluster):
    """No FIN, no RST: peers hear nothing at all, for ever."""
    run = start()
    run.steps_with(2)
    stores = {pod["spec"]["nodeName"] for pod in run.pods("rendezvous")}
    node = next(p["spec"]["nodeName"] for p in run.pods() if p["spec"]["nodeName"] not in stores)
    step, *_ = run.last()
    cluster.control("node-cut", node.removeprefix("n"))
    began = time.time()
    try:
        elsewhere = lambda: sum(pod["spec"].get("nodeName", node) != node for pod in run.pods()) == 2  # noqa: E731
        cluster.wait("a replacement elsewhere", elsewhere, within_s=240)
        bound_s = time.time() - began
        resumed, _, when = run.steps_with(2, after=time.time(), within_s=300)
        LOG.info(f"replaced after {bound_s:.1f} s, a step after {when - began:.1f} s; {step} -> {resumed}")
        assert resumed > 1
        assert run.status["attempt"]["number"] == 1
    finally:
        cluster.control("node-join", node.removeprefix("n"))
    cluster.wait("the node again", lambda: node in cluster.ready_nodes(), within_s=120)
