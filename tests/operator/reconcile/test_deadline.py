"""When a plan will be done, and whether that is in time: SPEC is created at 12:00, to finish within 2 h."""

import datetime as dt

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rightsizer_api.quantities import parse_time
from rightsizer_operator.measure.gauges import plan_gauges
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import ReportedProgress

BLOCKED = (Pod(name="demo-a1-0-x", attempt=1, unschedulable="0/3 nodes are available"),)


def live(fake_cluster, *changes):
    run = fake_cluster(*changes).settle()
    run.job(ready=2)
    return run.settle()


def blocked(fake_cluster):
    run = fake_cluster()
    run.pods = BLOCKED
    return run.settle()


def recovering(fake_cluster):
    """Measured at 100 tokens/s with 360,000 tokens left, then without its workers."""
    run = live(fake_cluster)
    run.progress = ReportedProgress(tokens=10e6 - 360_000, tokens_per_s=100.0, step=3000)
    run.settle().later(minutes=2).progress = None
    run.job(ready=0)
    run.pods = BLOCKED
    return run.settle()


def eta_of(run):
    return parse_time(run.plan["status"].get("eta"))


def margin_s(run):
    return plan_gauges(run.plan).get("margin_seconds")


@pytest.mark.parametrize("start", [blocked, recovering], ids=["never started", "lost its workers"])
def test_the_end_of_a_plan_that_does_not_train_moves_with_the_clock(fake_cluster, start):
    run = start(fake_cluster)
    before = eta_of(run)
    assert before >= run.now
    assert run.condition("DeadlineAtRisk")["reason"] == "OnTime"
    run.later(hours=1).settle()
    assert dt.timedelta(minutes=59) <= eta_of(run) - before <= dt.timedelta(minutes=61)


@pytest.mark.parametrize("start", [blocked, recovering], ids=["never started", "lost its workers"])
def test_a_plan_that_does_not_train_is_late_past_its_deadline_and_its_margin_negative(fake_cluster, start):
    run = start(fake_cluster).later(hours=2, seconds=19).settle()
    assert run.condition("DeadlineAtRisk")["status"] == "True"
    assert eta_of(run) >= run.now
    assert margin_s(run) < 0


def test_trained_tokens_are_not_counted_as_remaining(fake_cluster):
    """An hour of training was left at 12:00; workers are lost at 12:02."""
    run = recovering(fake_cluster)
    left = eta_of(run) - run.now
    assert dt.timedelta(minutes=60) <= left <= dt.timedelta(minutes=62)


def test_a_blocked_plan_is_late_as_soon_as_its_rest_does_not_fit(fake_cluster):
    """An hour is left, an hour and two minutes to the deadline."""
    run = recovering(fake_cluster).later(minutes=57).settle()
    assert run.condition("DeadlineAtRisk")["status"] == "False"
    assert margin_s(run) >= 0
    run.later(minutes=2).settle()
    assert (run.condition("DeadlineAtRisk")["status"], margin_s(run) < 0) == ("True", True)


def test_waiting_moves_the_end_of_an_unmeasured_plan(fake_cluster):
    run = blocked(fake_cluster)
    finish = dt.timedelta(seconds=run.plan["status"]["sizing"]["finishSeconds"])
    run.later(hours=1).pods = ()
    run.job(ready=2)
    run.settle().later(seconds=1).settle()
    assert abs(eta_of(run) - (run.now + finish)) < dt.timedelta(seconds=3)


def test_a_failed_plan_has_no_expected_end_and_is_late_past_its_deadline(fake_cluster):
    run = live(fake_cluster).ends("Failed").later(hours=1).settle()
    assert (eta_of(run), margin_s(run)) == (None, None)
    assert run.condition("DeadlineAtRisk")["status"] == "Unknown"
    run.later(hours=1, seconds=1).settle()
    assert run.condition("DeadlineAtRisk")["reason"] == "Late"


@pytest.mark.parametrize("suspended", [True, False], ids=["suspended", "no GPUs"])
def test_a_plan_without_an_expected_end_is_late_past_its_deadline(fake_cluster, suspended):
    run = fake_cluster({"suspend": True}) if suspended else fake_cluster(nodes=0)
    assert run.settle().condition("DeadlineAtRisk")["reason"] == "NoEstimate"
    assert run.later(hours=2, seconds=1).settle().condition("DeadlineAtRisk")["reason"] == "Late"
    assert eta_of(run) is None
    assert margin_s(run) == (None if suspended else -1.0)  # its user has suspended it


def test_a_waiting_plan_writes_its_status_at_most_once_a_minute(fake_cluster):
    run, written = blocked(fake_cluster), 0
    for _ in range(60):
        written += any(hasattr(action, "status") for action in run.later(seconds=10).decide())
        run.settle()
    assert 1 <= written <= 10


def test_a_complete_plan_keeps_its_end(fake_cluster):
    run = live(fake_cluster).ends("Complete").settle()
    before = eta_of(run)
    run.jobs.clear()
    assert eta_of(run.later(hours=5).settle()) == before
    assert run.condition("DeadlineAtRisk")["reason"] == "Finished"


RATES = st.one_of(st.just(0.0), st.floats(-320, 12).map(lambda exponent: 10.0**exponent))
FINISHES_S = st.floats(-3, 300).map(lambda exponent: 10.0**exponent)
TOKENS = {"1": 1.0, "10M": 1e7, "100B": 1e11, "15T": 1.5e13, "1000T": 1e15}
HOURS = st.lists(st.floats(0, 1e5), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pace=st.tuples(RATES, FINISHES_S), tokens=st.sampled_from(sorted(TOKENS)), hours=HOURS)
@example(pace=(5e-324, 1e300), tokens="1000T", hours=[0.0])
@example(pace=(0.0, 1e300), tokens="1", hours=[0.0, 1e5])
@pytest.mark.parametrize("ready", [0, 1, 2])
def test_a_plan_that_is_not_complete_never_ends_in_the_past(fake_cluster, pace, tokens, hours, ready):
    """Whatever it measures, however slow: its status is written, and its margin and condition agree."""
    run = live(fake_cluster)
    run.plan["spec"]["workload"]["tokens"] = tokens  # sized for less: an estimate may be wrong by any factor
    run.plan["status"]["sizing"]["finishSeconds"] = pace[1]
    run.progress = ReportedProgress(tokens=TOKENS[tokens] / 3, tokens_per_s=pace[0], step=1)
    run.settle().progress = None
    run.job(ready=ready)
    for wait in hours:
        run.later(hours=wait).settle()
        late = run.condition("DeadlineAtRisk")["status"] == "True"
        assert eta_of(run) >= run.now.replace(microsecond=0)
        assert late is (margin_s(run) < 0)
        assert late or run.now <= parse_time(run.plan["status"]["deadline"])
