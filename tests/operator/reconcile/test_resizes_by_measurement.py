import pytest

from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.reading import Missing
from rightsizer_engine.resize.types import Action, Bottleneck, Decision
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.resize_advice import history_of_status
from rightsizer_operator.values.actions import EmitEvent, Requeue
from rightsizer_operator.values.snapshot import ReportedProgress

FREE = {"resources": {"gpus": None}, "layout": {"microBatch": 4}}  # how many is rightsizer's to say


def judged(action, gpus, **more):
    return Decision(
        action=action,
        gpus=gpus,
        reason="as measured",
        confidence=0.95,
        layout=more.pop("layout", None),
        **more,
    )


def unmeasured(reason):
    missing = Missing(reason=reason)
    return Decision(action=Action.KEEP, gpus=1, reason=str(missing), missing=missing)


@pytest.fixture
def running(fake_cluster):
    """A plan whose one worker trains, and a judgement: running(decision)."""

    def make(decision=None, change=None):
        run = fake_cluster(change or FREE).settle()
        pods = run.job()["spec"]["parallelism"]
        run.job(ready=pods)
        run.settle().later(hours=1).decision = decision
        return run

    return make


def parallelism(run, attempt=1):
    return run.jobs[f"demo-a{attempt}"]["spec"]["parallelism"]


def test_a_recommendation_is_reported_once_and_changes_nothing(running):
    run = running(judged(Action.GROW, 3, withheld="mode is Recommend")).settle()
    told = run.plan["status"]["recommendation"]
    assert (told["action"], told["gpus"], parallelism(run)) == ("Grow", 3, 1)
    assert "mode is Recommend" in told["reason"]
    assert [e.reason for e in run.events].count("Grow") == 1


def test_missing_and_returning_data_are_recorded_once_without_an_event(running):
    run = running(unmeasured("9 samples are too few")).settle()
    run.decision = judged(Action.KEEP, 1)
    assert run.settle().plan["status"]["recommendation"]["reason"] == "as measured"
    run.decision = unmeasured("nothing was measured")
    assert run.settle().plan["status"]["recommendation"]["reason"] == "unknown: nothing was measured"
    run.decision = unmeasured("2 samples are too few")
    assert run.settle().plan["status"]["recommendation"]["reason"] == "unknown: nothing was measured"
    assert "Keep" not in [e.reason for e in run.events]


def test_a_changed_reason_against_a_resize_is_reported_again(running):
    run = running(judged(Action.SHRINK, 1, withheld="mode is Recommend")).settle()
    run.decision = judged(Action.SHRINK, 1, withheld="no other job waits for GPUs")
    assert run.settle().plan["status"]["recommendation"]["reason"].endswith("no other job waits for GPUs")
    assert [e.reason for e in run.events].count("Shrink") == 2


@pytest.mark.parametrize(
    ("decision", "status", "reason"),
    [
        (judged(Action.SHRINK, 1), "True", "FewerWouldDo"),
        (judged(Action.KEEP, 1), "False", "AsNeeded"),
        (judged(Action.FLAG, 1, bottleneck=Bottleneck.IDLE), "True", "NotUsed"),
        (
            unmeasured("nothing was measured"),
            "Unknown",
            "NotMeasured",
        ),
        (Decision(action=Action.KEEP, gpus=1, reason="warming up"), "Unknown", "NotJudged"),
    ],
    ids=["fewer", "as-needed", "idle", "missing", "warming-up"],
)
def test_an_oversized_plan_is_reported_as_such(running, decision, status, reason):
    found = running(decision).settle().condition("OverProvisioned")
    assert (found["status"], found["reason"]) == (status, reason)


def test_a_judgement_to_act_on_resizes_in_place(running):
    run = running(judged(Action.GROW, 3, act=True)).settle()
    assert (parallelism(run), run.state) == (3, "Resizing")
    row = run.plan["status"]["resizes"][-1]
    assert (row["fromGPUs"], row["toGPUs"], row["cause"]) == (1, 3, "Measured")
    run.decision = None
    run.job(ready=3)
    assert run.settle().state == "Running"


def test_a_decision_during_a_resize_waits_for_its_end(running):
    run = running(judged(Action.GROW, 3, act=True)).settle()
    run.decision = judged(Action.SHRINK, 2, act=True)
    assert (parallelism(run.settle()), run.state) == (3, "Resizing")


def test_another_layout_is_a_new_attempt(running):
    layout = Layout(tp=2, dp=1, micro_batch=4)
    framework = {**FREE, "launch": {"framework": "custom"}}
    run = running(judged(Action.RELAYOUT, 2, act=True, layout=layout, in_place=False), framework).settle()
    assert run.plan["status"]["attempt"]["number"] == 2
    assert run.plan["status"]["attempt"]["layout"]["tp"] == 2


def test_a_resize_that_does_not_come_up_goes_back_and_is_remembered(running):
    run = running(judged(Action.GROW, 3, act=True)).settle()
    run.decision = None
    assert any(isinstance(action, Requeue) and action.after_s <= 600 for action in run.decide())
    run.later(seconds=601).settle()
    assert parallelism(run) == 1
    assert run.plan["status"]["resizes"][-1]["cause"] == "Failure"
    assert history_of_status(PersistedStatus.of(run.plan["status"])).failed_gpus == (3,)
    assert "ResizeFailed" in [e.reason for e in run.events if isinstance(e, EmitEvent)]


def test_a_resize_that_came_up_stays_whatever_happens_later(running):
    run = running(judged(Action.GROW, 3, act=True)).settle()
    run.decision = None
    run.job(ready=3)
    run.settle().later(seconds=700).job(ready=0)
    run.settle().later(seconds=700)
    assert (parallelism(run.settle()), run.state) == (3, "Recovering")


def test_a_size_at_which_it_fails_is_left_for_the_last_good_one(running):
    layout = Layout(tp=2, dp=1, micro_batch=4)
    framework = {**FREE, "launch": {"framework": "custom"}}
    run = running(judged(Action.RELAYOUT, 2, act=True, layout=layout, in_place=False), framework).settle()
    run.decision = None
    run.ends("Failed", 2).later(seconds=60).settle()
    assert run.plan["status"]["attempt"]["number"] == 3
    assert run.plan["status"]["attempt"]["gpus"] == 1
    assert run.condition("Failed")["status"] == "False"


@pytest.mark.parametrize(
    ("workers", "attempt", "gpus"), [(3, 1, 3), (1, 2, 1)], ids=["trained", "never-trained"]
)
def test_only_a_size_at_which_it_trained_may_end_a_run(running, workers, attempt, gpus):
    run = running(judged(Action.GROW, 3, act=True)).settle()
    run.decision = None
    run.job(ready=3)
    run.settle().progress = ReportedProgress(tokens=1e5, tokens_per_s=1e3, step=5, workers=workers)
    assert ("trainedAt" in run.settle().plan["status"]["resizes"][-1]) == (workers == 3)
    run.progress = None
    run.ends("Failed").later(hours=2).settle()
    assert (run.plan["status"]["attempt"]["number"], run.plan["status"]["attempt"]["gpus"]) == (attempt, gpus)
    assert run.condition("Failed")["status"] == ("True" if workers == 3 else "False")


def test_workers_that_fall_silent_are_no_measurement(running):
    run = running()
    run.progress = ReportedProgress(tokens=1e5, tokens_per_s=1e3, step=5)
    assert run.settle().condition("MetricsAvailable")["status"] == "True"
    run.progress = None
    assert run.later(seconds=60).settle().condition("MetricsAvailable")["status"] == "True"
    assert run.later(seconds=240).settle().condition("MetricsAvailable")["status"] == "False"
