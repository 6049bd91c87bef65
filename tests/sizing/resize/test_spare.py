"""Jobs without a deadline: idle GPUs are taken, and given back while others wait."""

from dataclasses import replace

import pytest
from tests.sizing.resize.test_policy_cases import HOUR, LIMITS, NOW, READING, RUNNING, Curve

from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import Action, History

FREE = replace(LIMITS, takes_spare=True, free_gpus=16)
ENDLESS = replace(RUNNING, deadline_left_s=None)
LONG_AGO = NOW - 10 * HOUR


def decided(*, waiting, gpus=8, history=None, limits=FREE, **running):
    reading = replace(READING, others_waiting=waiting, gpus=gpus)
    return decide(reading, replace(ENDLESS, gpus=gpus, **running), limits, history or History(), now_s=NOW)


def test_idle_gpus_are_taken_as_far_as_they_add_speed():
    found = decided(waiting=False)
    assert (found.action, found.gpus, found.act) == (Action.GROW, 16, True)
    assert "8 GPUs are idle" in found.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": replace(FREE, takes_spare=False)},
        {"limits": replace(FREE, free_gpus=0)},
        {"limits": replace(FREE, max_gpus=8)},
        {"scaling": Curve(doubling=1.4)},
        {"tokens_left": 60.0 * 1000.0},
        {"waiting": None},
    ],
    ids=["not-allowed", "none-free", "at-the-limit", "little-speed", "nearly-done", "pressure-unknown"],
)
def test_otherwise_the_size_stays(changes):
    found = decided(**{"waiting": False} | changes)
    assert (found.action, found.gpus) == (Action.KEEP, 8)
    assert "no deadline" in found.reason


def test_spare_gpus_return_in_one_step_to_a_waiting_job():
    grown = History(first_gpus=8, last_resize_s=LONG_AGO)
    found = decided(waiting=True, gpus=32, history=grown)
    assert (found.action, found.gpus, found.act) == (Action.SHRINK, 8, True)
    assert "24 spare GPUs" in found.reason


@pytest.mark.parametrize("last_s", [LONG_AGO, NOW - 60.0], ids=["planned-size", "cooling-down"])
def test_the_planned_size_is_never_given_back_and_the_cool_down_holds(last_s):
    at = 8 if last_s == LONG_AGO else 32
    found = decided(waiting=True, gpus=at, history=History(first_gpus=8, last_resize_s=last_s))
    assert (found.action, found.gpus) == (Action.KEEP, at)
