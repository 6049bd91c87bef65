"""Idle plans: the warning, the grace time, the suspension, and what interrupts the evidence."""

import pytest

from rightsizer_engine.resize.types import Action, Bottleneck, Decision, Mode
from rightsizer_operator.values.actions import PatchPlan
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import ReportedProgress

IDLE = Decision(
    action=Action.FLAG,
    gpus=2,
    reason="idle: its busiest GPU is 0% busy",
    evidence=("window 10m, 40 samples",),
    bottleneck=Bottleneck.IDLE,
)
BUSY = Decision(action=Action.KEEP, gpus=2, reason="well sized", bottleneck=Bottleneck.HEALTHY)
UNKNOWN = Decision(action=Action.KEEP, gpus=2, reason="unknown: stale", bottleneck=Bottleneck.UNKNOWN)


@pytest.fixture
def idle(fake_cluster):
    """idle(elasticity): a plan that runs, and that is idle from now on."""

    def make(**elasticity):
        run = fake_cluster({"elasticity": {"whenIdle": "Suspend", "idleGrace": "30m"} | elasticity}).settle()
        run.job(ready=2)
        run.progress = ReportedProgress(tokens=1e5, tokens_per_s=1e3, step=5, workers=2, phase="training")
        run.settle().decision = IDLE
        return minutes(run, 1)

    return make


def minutes(run, count):
    """Reconcile every minute, as decisions come."""
    for _ in range(count):
        run.later(minutes=1).settle()
    return run


def suspended(run):
    return bool(run.plan["spec"].get("suspend"))


def reasons(run):
    return [event.reason for event in run.events]


def test_it_is_warned_first_and_suspended_with_the_evidence_when_the_grace_time_is_over(idle):
    run = idle()
    assert not suspended(run)
    assert reasons(run).count("Idle") == 1
    assert "2026-11-21T12:31:00Z" in run.condition("Idle")["message"]
    assert not suspended(minutes(run, 29))
    assert suspended(minutes(run, 1))
    said = run.condition("Idle")["message"]
    assert (run.condition("Idle")["reason"], reasons(run).count("IdleSuspended")) == ("Suspended", 1)
    for text in ("0% busy", "window 10m", "30m", "kubectl rightsizer resume demo"):
        assert text in said


def test_its_job_is_suspended_with_a_reason_until_a_user_resumes_it(idle):
    run = minutes(idle(), 31)
    run.decision = None
    run.job(ready=0, conditions=[{"type": "Suspended", "status": "True"}])
    assert run.settle().state == "Suspended"
    assert "0% busy" in run.condition("Ready")["message"]
    run.edit(suspend=False).job(ready=2, conditions=[])
    assert not suspended(minutes(run, 5))
    assert run.condition("Idle")["status"] == "False"


def test_by_default_it_is_only_flagged(idle):
    run = minutes(idle(whenIdle=None, idleGrace=None), 120)
    assert not suspended(run)
    assert (run.condition("Idle")["status"], run.condition("Idle")["reason"]) == ("True", "NotUsed")


def test_where_the_site_allows_no_actions_it_is_only_flagged(idle):
    run = idle()
    run.settings = OperatorSettings(caps={"team": Mode.RECOMMEND})
    assert not suspended(minutes(run, 120))
    assert "the site" in run.condition("Idle")["message"]


def unready(run):
    run.job(ready=1)


def busy(run):
    run.decision = BUSY


def unknown(run):
    run.decision = UNKNOWN


def no_operator(run):
    run.later(minutes=10)


@pytest.mark.parametrize("interrupt", [unready, busy, unknown, no_operator])
def test_whatever_interrupts_the_evidence_starts_the_grace_time_again(idle, interrupt):
    run = minutes(idle(), 20)
    interrupt(run)
    minutes(run, 1).decision = IDLE
    run.job(ready=2)
    assert not suspended(minutes(run, 25))
    assert suspended(minutes(run, 10))


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "startup", "recovery", ""])
def test_it_is_suspended_in_training_only(idle, phase):
    run = idle()
    run.progress = ReportedProgress(tokens=1e5, tokens_per_s=0.0, step=5, workers=2, phase=phase)
    assert not suspended(minutes(run, 60))


def test_the_suspension_names_the_plan_by_its_uid(idle):
    run = minutes(idle(), 31)
    (patch,) = (action for action in run.log if isinstance(action, PatchPlan))
    assert (patch.uid, patch.spec) == ("uid-1", {"suspend": True})
