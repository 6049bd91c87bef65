"""The operator's statuses as kstatus (Flux, Helm, kubectl) and Argo CD read them."""

from pathlib import Path

import lupa.lua51
import pytest

from rightsizer_operator.reconcile.reconcile import faulted
from rightsizer_operator.values.inventory import Inventory

HEALTH = Path(__file__).parents[3] / "deploy/argocd/health.lua"


def new(cluster):
    return cluster()


def invalid(cluster):
    return cluster({"resources": {"gpuTypes": ["H1000"]}}).settle()


def without_gpus(cluster):
    return cluster(nodes=0).settle()


def waiting(cluster):
    plan = cluster(nodes=1, gpus=2)
    plan.inventory = Inventory(nodes=tuple(plan.nodes), held={"n0": 1})
    return plan.settle()


def starting(cluster):
    return cluster().settle()


def running(cluster):
    plan = cluster().settle()
    plan.job(ready=2)
    return plan.settle()


def edited(cluster):
    plan = running(cluster)
    return plan.edit(workload={"tokens": "20M"})


def running_with_an_invalid_edit(cluster):
    return running(cluster).edit(resources={"gpuTypes": ["H1000"]}).settle()


def running_with_too_large_an_edit(cluster):
    plan = cluster(nodes=1, gpus=2).settle()
    plan.job(ready=2)
    return plan.settle().edit(resources={"gpus": 4}).settle()


def suspended(cluster):
    plan = running(cluster).edit(suspend=True).settle()
    plan.job(ready=0)
    return plan.settle()


def complete(cluster):
    return running(cluster).ends("Complete").settle()


def complete_after_too_large_an_edit(cluster):
    return running_with_too_large_an_edit(cluster).ends("Complete").settle()


def failed(cluster):
    return running(cluster).ends("Failed", reason="PodFailurePolicy", message="exit code 78").settle()


def running_with_a_fault_of_the_operator(cluster):
    plan = running(cluster)
    for action in faulted(plan.snapshot(), ValueError("no such thing")):
        plan.execute(action)
    return plan


STATES = [
    (new, "InProgress", "Progressing"),
    (invalid, "Failed", "Degraded"),
    (without_gpus, "InProgress", "Progressing"),
    (waiting, "InProgress", "Progressing"),
    (starting, "InProgress", "Progressing"),
    (running, "Current", "Healthy"),
    (edited, "InProgress", "Progressing"),
    (running_with_an_invalid_edit, "Failed", "Degraded"),
    (running_with_too_large_an_edit, "InProgress", "Progressing"),
    (running_with_a_fault_of_the_operator, "InProgress", "Progressing"),
    (suspended, "InProgress", "Suspended"),
    (complete, "Current", "Healthy"),
    (complete_after_too_large_an_edit, "Current", "Healthy"),
    (failed, "Failed", "Degraded"),
]
IDS = [make.__name__ for make, *_ in STATES]


def api_object(plan):
    """The plan as the API server stores it: the CRD sets a status until the operator writes one."""
    return {"status": {"observedGeneration": -1}, **plan.plan}


def kstatus(plan):
    """A stand-in for kstatus; test_operator_gitops.py (e2e) runs the real one, in Helm."""
    status = plan["status"]
    held = {condition["type"]: condition["status"] for condition in status.get("conditions", ())}
    if status["observedGeneration"] != plan["metadata"]["generation"] or held.get("Reconciling") == "True":
        return "InProgress"
    if held.get("Stalled") == "True":
        return "Failed"
    return "Current" if held.get("Ready", "True") == "True" else "InProgress"


def argo_health(plan):
    """health.lua in Lua 5.1, which Argo CD's gopher-lua implements; `obj` is a Lua table there too."""
    lua = lupa.lua51.LuaRuntime()
    lua.globals().obj = lua.table_from(plan, recursive=True)
    return dict(lua.execute(HEALTH.read_text()))


@pytest.mark.parametrize(("make", "expected", "_"), STATES, ids=IDS)
def test_kstatus_distinguishes_progress_from_a_plan_that_needs_a_change(fake_cluster, make, expected, _):
    assert kstatus(api_object(make(fake_cluster))) == expected


@pytest.mark.parametrize(("make", "_", "expected"), STATES, ids=IDS)
def test_argo_cd_s_health_follows_the_conditions(fake_cluster, make, _, expected):
    health = argo_health(api_object(make(fake_cluster)))
    assert health["status"] == expected
    assert health["message"]


def test_a_stalled_plan_s_message_is_the_user_s_remedy(fake_cluster):
    plan = invalid(fake_cluster)
    assert "H1000" in plan.condition("Stalled")["message"]
    assert argo_health(plan.plan)["message"].startswith("Invalid: ")
