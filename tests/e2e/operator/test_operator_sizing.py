"""Plans that take minutes of processor time to size, beside others, on a real operator and API server."""

import pytest
from life import SimulatedRun
from outside import LEASES

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow]
HUGE = {
    "model": {"name": "deepseek-v3"},
    "workload": {"tokens": "100B", "sequenceLength": 4096, "globalBatchSequences": 15360},
    "deadline": {"finishWithin": "30d"},
    "budget": {"maxUSD": 1000},
    "launch": {"image": "ghcr.io/acme/train:1.4", "command": ["train.py"]},
}


@pytest.fixture
def plans(alone, namespace):
    """A huge plan and an ordinary one, and a function that starts an operator for them."""
    alone.delete_lease()
    huge, ordinary = (SimulatedRun(alone.api, namespace, name) for name in ("huge", "ordinary"))
    huge.plan["spec"] = HUGE
    yield huge, ordinary, lambda **settings: alone.operator(**settings).start()
    alone.end_all()


def _state(run):
    return run.condition(run.now, "Ready")["reason"]


def test_a_plan_that_takes_minutes_to_size_costs_neither_the_lease_nor_another_plan(alone, plans):
    huge, ordinary, operator = plans
    acting = operator(sizing_s=600.0)
    huge.create()
    huge.wait("its search", lambda: _state(huge) == "Sizing", 60)
    path = f"{LEASES.format(alone.system)}/rightsizer-operator"
    before = alone.api("GET", path)["spec"]
    ordinary.create()
    ordinary.until("Running")
    ordinary.edit(resources={"gpus": 2})
    ordinary.until("Running", gpus=2)
    after = alone.api("GET", path)["spec"]
    assert _state(huge) == "Sizing"
    assert after["renewTime"] > before["renewTime"]
    held = ("holderIdentity", "acquireTime", "leaseTransitions")
    assert [after[name] for name in held] == [before[name] for name in held]
    assert "another replica may hold the lease" not in acting.words


def test_a_plan_over_the_sizing_budget_is_reported_until_it_is_simpler(plans):
    huge, ordinary, operator = plans
    operator(sizing_s=1.0, retry_s=1.0)
    huge.create()
    huge.wait("its refusal", lambda: _state(huge) == "SizingTooLong", 60)
    assert "after 1 s of processor time; set spec.layout" in huge.condition(huge.now, "Sized")["message"]
    ordinary.create()
    ordinary.until("Running")
    huge.edit(resources={"gpus": 1})
    huge.wait("an answer", lambda: _state(huge) == "NoPlan", 60)
