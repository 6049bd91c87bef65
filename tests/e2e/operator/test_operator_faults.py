"""Faults that a plan survives: one plan survives it all."""

import datetime as dt
import json
import logging
import time

import pytest

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
LOG = logging.getLogger(__name__)
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
SOON = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10} for key in SILENT]
SHARED_RUN = {
    "launch": {"podTemplate": {"spec": {"tolerations": SOON}}}
}  # else tests wait 90 s for evictions


def _goes_on(run, began, *, workers=2, within_s=240):
    """Training goes on after `began`, from where it was; how long that took."""
    steps = (r for r, _ in run.records() if r["event"] == "step" and r["time"] < began)
    before = max((r["step"] for r in steps), default=0)
    step, _, when = run.steps_with(workers, after=began, within_s=within_s)
    LOG.info(f"a step of {workers} workers {when - began:.1f} s after; step {before} -> {step}")
    return step


def test_a_killed_worker_process_costs_no_pod(shared_run):
    shared_run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in shared_run.pods()}
    began = time.time()
    shared_run.kubectl("exec", min(names), "--", "pkill", "-9", "-f", "[-]u .*/paced.py")
    shared_run.cluster.wait("the workers again", lambda: shared_run.started(after=began), within_s=180)
    _goes_on(shared_run, shared_run.started(after=began)["time"])
    assert {pod["metadata"]["name"] for pod in shared_run.pods()} == names


@pytest.mark.parametrize(
    "rank_0",
    [pytest.param(True, id="rank-0"), pytest.param(False, id="another", marks=pytest.mark.nightly)],
)
def test_any_pod_may_go(shared_run, rank_0):
    shared_run.steps_with(2)
    leader = shared_run.records()[-1][1]
    victim = next(
        p["metadata"]["name"] for p in shared_run.pods() if (p["metadata"]["name"] == leader) == rank_0
    )
    shared_run.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    shared_run.cluster.wait(
        "a replacement", lambda: len(shared_run.pods()) == 2 and victim not in str(shared_run.pods()), 120
    )
    assert _goes_on(shared_run, time.time()) > 1
    assert shared_run.jobs == [f"{shared_run.name}-a1"]


def test_the_rendezvous_pod_may_go(shared_run):
    shared_run.steps_with(2)
    names = {pod["metadata"]["name"] for pod in shared_run.pods()}
    began = time.time()
    shared_run.kubectl(
        "delete", "pod", "--selector=rightsizer.dev/role=rendezvous", "--grace-period=0", "--force"
    )
    shared_run.cluster.wait("the workers again", lambda: shared_run.started(after=began), within_s=240)
    _goes_on(shared_run, shared_run.started(after=began)["time"])
    assert {pod["metadata"]["name"] for pod in shared_run.pods()} == names
    assert shared_run.status["attempt"]["number"] == 1


@pytest.mark.nightly  # one that loses its power is the harder case
def test_a_node_may_die_and_its_worker_comes_up_elsewhere(shared_run, cluster):
    shared_run.steps_with(2)
    stores = {pod["spec"]["nodeName"] for pod in shared_run.pods("rendezvous")}
    victim = next(pod for pod in shared_run.pods() if pod["spec"]["nodeName"] not in stores)
    node, began = victim["spec"]["nodeName"], time.time()
    cluster.control("node-kill", node.removeprefix("n"))
    try:
        cluster.wait(
            "a replacement elsewhere",
            lambda: sum(pod["spec"].get("nodeName", node) != node for pod in shared_run.pods()) == 2,
            within_s=240,
        )
        LOG.info(f"the replacement was bound {time.time() - began:.1f} s after the node's death")
        _goes_on(shared_run, time.time())
    finally:
        cluster.control("node-start", node.removeprefix("n"))
    cluster.wait("the node again", lambda: node in cluster.ready_nodes(), within_s=120)


def test_a_node_that_loses_its_power_is_survived_within_bounds(shared_run, cluster):
    """No FIN, no RST: peers hear nothing at all, for ever."""
    workers = len(shared_run.pods())
    shared_run.steps_with(workers)
    stores = {pod["spec"]["nodeName"] for pod in shared_run.pods("rendezvous")}
    held = {pod["spec"]["nodeName"] for pod in shared_run.pods()}
    node = min(held - stores)
    step, *_ = shared_run.last()
    cluster.control("node-cut", node.removeprefix("n"))
    began = time.time()
    try:
        cluster.wait(
            "a replacement elsewhere",
            lambda: sum(p["spec"].get("nodeName", node) != node for p in shared_run.pods()) == workers,
            within_s=240,
        )
        bound_s = time.time() - began
        resumed, _, when = shared_run.steps_with(workers, after=time.time(), within_s=300)
        LOG.info(f"replaced after {bound_s:.1f} s, a step after {when - began:.1f} s; {step} -> {resumed}")
        assert resumed > 1
        assert shared_run.status["attempt"]["number"] == 1
    finally:
        cluster.control("node-join", node.removeprefix("n"))
    cluster.wait("the node again", lambda: node in cluster.ready_nodes(), within_s=120)


def _lease(cluster, operator):
    return cluster.api.get("lease", "rightsizer-operator", namespace=operator)["spec"]


def test_the_acting_operator_may_be_killed_and_the_other_takes_over(shared_run, cluster, operator):
    shared_run.steps_with(2)
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
    shared_run.kubectl("scale", "tp", shared_run.name, "--replicas=1")
    cluster.wait(
        "the scale is seen",
        lambda: json.dumps(shared_run.status.get("attempt")).find('"gpus": 1') > 0,
        within_s=30,
    )
    assert shared_run.jobs == [f"{shared_run.name}-a1"]
