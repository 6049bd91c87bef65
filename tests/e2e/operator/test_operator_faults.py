import json
import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)


def _goes_on(run, began, *, workers=2, within_s=240):
    """Training goes on after `began`, from where it was; how long that took."""
    steps = (r for r, _ in run.records() if r["event"] == "step" and r["time"] < began)
    before = max((r["step"] for r in steps), default=0)
    step, _, when = run.steps_with(workers, after=began, within_s=within_s)
    LOG.info(f"a step of {workers} workers {when - began:.1f} s after; step {before} -> {step}")
    return step


def test_a_killed_worker_process_costs_no_pod(start):
    run = start()
    run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in run.pods()}
    began = time.time()
    run.kubectl("exec", min(names), "--", "pkill", "-9", "-f", "train.py --nothing|[-]u train.py")
    starts = lambda: [r for r, _ in run.records() if r["event"] == "start" and r["time"] > began]  # noqa: E731
    run.cluster.wait("the workers again", starts, within_s=180)
    _goes_on(run, starts()[0]["time"])
    assert {pod["metadata"]["name"] for pod in run.pods()} == names


@pytest.mark.parametrize("rank_0", [True, False], ids=["rank-0", "another"])
def test_any_pod_may_go(start, rank_0):
    run = start()
    run.steps_with(2)
    leader = run.records()[-1][1]
    victim = next(p["metadata"]["name"] for p in run.pods() if (p["metadata"]["name"] == leader) == rank_0)
    run.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    run.cluster.wait("a replacement", lambda: len(run.pods()) == 2 and victim not in str(run.pods()), 120)
    assert _goes_on(run, time.time()) > 1
    assert run.jobs == [f"{run.name}-a1"]


def test_the_rendezvous_pod_may_go(start):
    run = start()
    run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in run.pods()}
    began = time.time()
    run.kubectl("delete", "pod", "--selector=rightsizer.dev/role=rendezvous", "--grace-period=0", "--force")
    starts = lambda: [r for r, _ in run.records() if r["event"] == "start" and r["time"] > began]  # noqa: E731
    run.cluster.wait("the workers again", starts, within_s=240)
    _goes_on(run, starts()[0]["time"])
    assert {pod["metadata"]["name"] for pod in run.pods()} == names
    assert run.status["attempt"]["number"] == 1


def test_a_node_may_die_and_its_worker_comes_up_elsewhere(start, cluster):
    run = start()
    run.steps_with(2)
    stores = {pod["spec"]["nodeName"] for pod in run.pods("rendezvous")}
    victim = next(pod for pod in run.pods() if pod["spec"]["nodeName"] not in stores)
    node, began = victim["spec"]["nodeName"], time.time()
    cluster.control("node-kill", node.removeprefix("n"))
    try:
        cluster.wait(
            "a replacement elsewhere",
            lambda: sum(pod["spec"].get("nodeName", node) != node for pod in run.pods()) == 2,
            within_s=240,
        )
        LOG.info(f"the replacement was bound {time.time() - began:.1f} s after the node's death")
        _goes_on(run, time.time())
    finally:
        cluster.control("node-start", node.removeprefix("n"))
    cluster.wait("the node again", lambda: cluster.control("status").count(" ready,") == 3, within_s=120)


def test_the_acting_operator_may_be_killed_and_the_other_takes_over(start, cluster, operator):
    run = start()
    run.steps_with(2)
    holder = cluster.get("lease", "rightsizer-operator", namespace=operator)["spec"]["holderIdentity"]
    pod, began = holder.rpartition("-")[0], time.monotonic()
    cluster.kubectl("delete", "pod", pod, "--namespace", operator, "--grace-period=0", "--force")

    def another():
        lease = cluster.get("lease", "rightsizer-operator", namespace=operator)
        return lease["spec"]["holderIdentity"] != holder

    cluster.wait("another holder", another, within_s=30)
    took_s = time.monotonic() - began
    LOG.info(f"taken over after {took_s:.1f} s")
    assert took_s <= 15
    run.kubectl("scale", "tp", run.name, "--replicas=1")
    cluster.wait(
        "the scale is seen", lambda: json.dumps(run.status.get("attempt")).find('"gpus": 1') > 0, within_s=30
    )
    assert run.jobs == [f"{run.name}-a1"]
