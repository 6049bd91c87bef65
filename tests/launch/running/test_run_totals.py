import pytest

from rightsizer_launch.running.run_totals import RunTotals, pace
from rightsizer_launch.worker.progress import Record
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_local.live_view import Expectation, eta_s


def start(time, step, *, attempt=1, restart=0, world=2):
    return Record(
        event="start", time=time, step=step, attempt=attempt, restart=restart, world=world, pids=(1, 2)
    )


def steps(first, last, *, began, loss=5.0, restart=0, world=2, step_s=1.0, attempt=1):
    return [
        Record(
            event="step",
            time=began + (n - first + 1) * step_s,
            step=n,
            tokens=100.0 * n,
            loss=loss - 0.1 * n,
            step_s=step_s,
            restart=restart,
            world=world,
            attempt=attempt,
        )
        for n in range(first, last + 1)
    ]


LOST = [start(10, 0), *steps(1, 8, began=10), start(30, 5, restart=1), *steps(6, 12, began=30, restart=1)]


def test_steps_after_the_checkpoint_are_lost_once():
    assert RunTotals().add(LOST).lost_steps == 3


def test_adding_records_copies_none_of_those_before():
    totals = RunTotals().add(LOST)
    records, steps_before = totals.records, totals.steps
    totals.add(steps(13, 20, began=40, restart=1))
    assert totals.records is records
    assert totals.steps is steps_before


def test_time_is_split_by_cause():
    phases = RunTotals().add(LOST, launched_s={1: 4.0}).phases_s
    assert phases == {"startup": 6.0, "training": 15.0, "checkpoint": 0.0, "recovery": 12.0}


def test_a_stop_between_attempts_is_nobodys_time():
    resumed = [start(1000, 12, attempt=2, world=1), *steps(13, 14, began=1000, attempt=2, world=1)]
    totals = RunTotals().add(LOST).add(resumed, launched_s={2: 990.0})
    assert (totals.phases_s["startup"], totals.phases_s["recovery"], totals.workers) == (10.0, 12.0, 1)


def test_the_curve_holds_the_last_loss_of_a_repeated_step():
    again = [start(30, 5, restart=1), *steps(6, 8, began=30, loss=9.0)]
    curve = dict(RunTotals().add([*LOST[:9], *again]).curve)
    assert curve[7] == pytest.approx(9.0 - 0.7)


def test_the_pace_leaves_each_starts_warm_up_out():
    slow_first = [*steps(1, 2, began=0, step_s=9.0), *steps(3, 9, began=18, step_s=2.0)]
    measured = pace(slow_first, 1, tokens_per_step=100.0)
    assert measured is not None
    assert (measured.step_s, measured.tokens_per_s, measured.steps) == (2.0, 50.0, 7)


def test_the_eta_is_the_predicted_one_until_the_warm_up_has_passed():
    expected = Expectation(target_tokens=1000.0, tokens_per_s=10.0, deadline_s=None, began_s=0.0)
    warm_up, later = steps(1, 2, began=0, step_s=9.0), steps(3, 5, began=18, step_s=2.0)
    assert eta_s(RunTotals().add(warm_up), expected) == pytest.approx(800 / 10)
    assert eta_s(RunTotals().add([*warm_up, *later]), expected) == pytest.approx(500 / 50)


def test_there_is_no_pace_before_there_are_steps():
    assert pace([], 1, tokens_per_step=100.0) is None


def test_many_failures_are_fine_when_they_are_rare():
    budget = RestartBudget(limit=2, within_s=60.0)
    for hour in range(50):
        budget = budget.failed(now_s=3600.0 * hour, step=hour + 1)
    assert not budget.spent


def test_too_many_failures_at_once_spend_the_budget():
    budget = RestartBudget(limit=2, within_s=60.0)
    for second in range(3):
        budget = budget.failed(now_s=second, step=second + 1)
    assert "the plan allows 2" in budget.spent


def test_failing_without_a_new_step_is_given_up_early():
    budget = RestartBudget(limit=100, within_s=3600.0)
    for second in range(3):
        budget = budget.failed(now_s=second, step=0)
    assert "without a new step" in budget.spent
