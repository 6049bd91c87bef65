"""What a plan survives: one plan survives it all."""

import datetime as dt
import json
import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SOON = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10} for key in SILENT]
VETERAN = {"launch": {"podTemplate": {"spec": {"tolerations": SOON}}}}  # else tests wait 90 s for evictions


def _goes_on(run, began, *, workers=2, within_s=240):
    """Training goes on after `began`, from where it was; how long that took."""
    steps = (r for r, _ in run.records() if r["event"] == "step" and r["time"] < began)
    before = max((r["step"] for r in steps), default=0)
    step, _, when = run.steps_with(workers, after=began, within_s=within_s)
    LOG.info(f"a step of {workers} workers {when - began:.1f} s after; step {before} -> {step}")
    return step


def test_a_killed_worker_process_costs_no_pod(veteran):
    veteran.steps_with(2)
    names = {pod["metadata"]["name"] for pod in veteran.pods()}
    began = time.time()
    veteran.kubectl("exec", min(names), "--", "pkill", "-9", "-f", "[-]u .*/paced.py")
    veteran.cluster.wait("the workers again", lambda: veteran.started(after=began), within_s=180)
    _goes_on(veteran, veteran.started(after=began)["time"])
    assert {pod["metadata"]["name"] for pod in veteran.pods()} == names


@pytest.mark.parametrize("rank_0", [True, False], ids=["rank-0", "another"])
def test_any_pod_may_go(veteran, rank_0):
    veteran.steps_with(2)
    leader = veteran.records()[-1][1]
    victim = next(
        p["metadata"]["name"] for p in veteran.pods() if (p["metadata"]["name"] == leader) == rank_0
    )
    veteran.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    veteran.cluster.wait(
        "a replacement", lambda: len(veteran.pods()) == 2 and victim not in str(veteran.pods()), 120
    )
    assert _goes_on(veteran, time.time()) > 1
    assert veteran.jobs == [f"{veteran.name}-a1"]


def test_the_rendezvous_pod_may_go(veteran):
    veteran.steps_with(2)
    names = {pod["metadata"]["name"] for pod in veteran.pods()}
    began = time.time()
    veteran.kubectl(
        "delete", "pod", "--selector=rightsizer.dev/role=rendezvous", "--grace-period=0", "--force"
    )
    veteran.cluster.wait("the workers again", lambda: veteran.started(after=began), within_s=240)
    _goes_on(veteran, veteran.started(after=began)["time"])
    assert {pod["metadata"]["name"] for pod in veteran.pods()} == names
    assert veteran.status["attempt"]["number"] == 1


def test_a_node_may_die_and_its_worker_comes_up_elsewhere(veteran, cluster):
    veteran.steps_with(2)
    stores = {pod["spec"]["nodeName"] for pod in veteran.pods("rendezvous")}
    victim = next(pod for pod in veteran.pods() if pod["spec"]["nodeName"] not in stores)
    node, began = victim["spec"]["nodeName"], time.time()
    cluster.control("node-kill", node.removeprefix("n"))
    try:
        cluster.wait(
            "a replacement elsewhere",
            lambda: sum(pod["spec"].get("nodeName", node) != node for pod in veteran.pods()) == 2,
            within_s=240,
        )
        LOG.info(f"the replacement was bound {time.time() - began:.1f} s after the node's death")
        _goes_on(veteran, time.time())
    finally:
        cluster.control("node-start", node.removeprefix("n"))
    cluster.wait("the node again", lambda: node in cluster.ready_nodes(), within_s=120)


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


def _lease(cluster, operator):
    return cluster.get("lease", "rightsizer-operator", namespace=operator)["spec"]


def test_the_acting_operator_may_be_killed_and_the_other_takes_over(veteran, cluster, operator):
    veteran.steps_with(2)
    leases = [_lease(cluster, operator)]
    holder = leases[0]["holderIdentity"]
    pod = holder.rpartition("-")[0]
    cluster.kubectl("delete", "pod", pod, "--namespace", operator, "--grace-period=0", "--force")

    def another():
        leases.append(_lease(cluster, operator))
        return leases[-1].get("holderIdentity") not in {None, "", holder}

    cluster.wait("another holder", another, within_s=30)
    silent = max(lease["renewTime"] for lease in leases if lease.get("holderIdentity") == holder)
    taken = leases[-1]["acquireTime"]
    took_s = (dt.datetime.fromisoformat(taken) - dt.datetime.fromisoformat(silent)).total_seconds()
    LOG.info(f"taken over {took_s:.1f} s after the last sign of life")
    assert took_s <= 15
    veteran.kubectl("scale", "tp", veteran.name, "--replicas=1")
    cluster.wait(
        "the scale is seen",
        lambda: json.dumps(veteran.status.get("attempt")).find('"gpus": 1') > 0,
        within_s=30,
    )
    assert veteran.jobs == [f"{veteran.name}-a1"]
