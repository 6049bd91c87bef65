import pytest
from tests.operator.kubectl.conftest import NOW, says

from rightsizer_api.state import State
from rightsizer_cli.output import plan_state


def told(plan, *events):
    return "\n".join(plan_state.why(plan, events, NOW))


def test_a_running_plan_shows_its_state_size_time_and_rate(plan):
    text = told(plan)
    assert text.startswith("demo is Running: it trains, for 1h.")
    assert "Size: 2 x H100-SXM5-80GB, DP 2 (requested: at least 1, at most 8)." in text
    assert "On time: it ends 2026-11-22T10:00:00Z, 2h before its deadline." in text
    assert "25% done at step 40; 0.90 x the prediction; 1 restarts." in text


def test_a_late_plan_shows_its_delay_and_remedies(plan):
    plan["status"]["eta"] = "2026-11-22T15:00:00Z"
    text = told(says(plan, Ready="Running", DeadlineAtRisk=("True", "Late", "")))
    assert "Late: it ends 2026-11-22T15:00:00Z, 3h after its deadline." in text
    assert "Next: more GPUs may help: kubectl rightsizer plan demo -n nlp" in text


def test_a_queued_plan_repeats_the_queues_words(plan):
    text = told(says(plan, Ready=("False", "Queued", "insufficient unused quota")))
    assert "demo is Queued: it waits in its queue" in text
    assert "Message: insufficient unused quota." in text


def test_an_impossible_edit_is_shown_beside_the_running_size(plan):
    text = told(says(plan, Ready="Running", Sized=("False", "InsufficientGPUs", "needs 16")))
    assert "The latest spec cannot be applied (InsufficientGPUs): needs 16." in text


def test_an_unobserved_plan_points_to_the_operator(plan):
    del plan["status"]
    text = told(plan)
    assert text.startswith("demo is new: the operator has not observed it yet")
    assert "check the operator: kubectl get pods" in text


def test_the_last_events_come_with_their_age(plan):
    event = {"reason": "Sized", "message": "2 GPUs", "lastTimestamp": "2026-11-21T11:30:00Z", "metadata": {}}
    assert "Event 30m ago: Sized: 2 GPUs" in told(plan, event)


@pytest.mark.parametrize("state", [state for state in State if state is not State.NEW])
def test_every_state_has_a_meaning(plan, state):
    assert f"demo is {state}: {state.sentence}" in told(says(plan, Ready=("False", state, "")))


@pytest.mark.parametrize("state", State)
def test_every_next_step_has_a_text(plan, state):
    assert "{" not in plan_state.next_step(says(plan, Ready=("False", state, "")))


def test_a_staged_plan_shows_its_opening_and_later_resizes(plan):
    plan["status"]["sizing"]["opening"] = {"text": "open with 2 H100-SXM5-80GB; reserve 8"}
    assert "Plan: open with 2 H100-SXM5-80GB; reserve 8. It was not resized" in told(plan)
    plan["status"]["resizes"] = [
        {"at": "2026-11-21T12:00:00Z", "fromGPUs": 2, "toGPUs": 4, "cause": "Measured", "reason": "late"}
    ]
    assert "It was measured and resized since." in told(plan)
