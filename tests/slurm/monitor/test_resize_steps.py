"""A change of size continues from Slurm's state after any interruption, and gives no command twice."""

import itertools
from dataclasses import replace

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.monitor.intent_log import CLOSED, Intent, IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.resize_steps import JobResizer, ResizeStep, next_step

JOB = SlurmJob(job_id=7, states=("RUNNING",), nodes=4, gpus=4, requeue=True, priority=9)
GROW = Intent(
    job_id=7,
    kind=Kind.REQUEUE,
    from_nodes=4,
    to_nodes=6,
    node_cores=8,
    restarts=0,
    stop_timeout_s=100.0,
)
SHRINK = replace(GROW, kind=Kind.SHRINK, to_nodes=2)
HELD = replace(JOB, states=("PENDING",), priority=0, reason="JobHeldUser", restarts=1)


class CrashError(Exception):
    """The monitor dies."""


class SmallSlurm:
    """A stand-in for one cluster with one job, for cuts that cannot be timed on a real one.

    What is asked for happens at once; `cut` counts the commands until one crashes, before or after it took.
    """

    name = "stand-in"

    def __init__(self, job=JOB, *, cut=None, after=False, refuse=()):
        self.now, self.cut, self.after, self.refuse = job, cut, after, refuse
        self.given = []

    def jobs(self):
        return (self.now,)

    def job(self, _job_id):
        return self.now

    def _take(self, what, job):
        if self.cut == 0 and not self.after:
            self.cut = None
            raise CrashError
        self.given.append(what)
        if what in self.refuse:
            raise SlurmError("scontrol", "Requested node configuration is not available", code=1)
        self.now = job
        if self.cut == 0:
            self.cut = None
            raise CrashError
        self.cut = None if self.cut is None else self.cut - 1

    def signal_script(self, _job_id, _name):
        self._take("ask", replace(HELD, nodes=self.now.nodes, restarts=self.now.restarts + 1))

    def resize(self, _job_id, *, nodes, tasks, cpus):
        assert (tasks, cpus) == (nodes, nodes * 8)
        self._take("size", replace(self.now, nodes=nodes))

    def release(self, _job_id):
        self._take("release", replace(self.now, states=("RUNNING",), priority=9, reason=""))

    def shrink(self, _job_id, *, nodes):
        self._take("shrink", replace(self.now, nodes=nodes))


def carried_out(slurm, path, intent):
    """Run from plan to end, with a new monitor (and log) after every crash."""
    log = IntentLog(path)
    log.plan(intent)
    for _ in range(20):
        try:
            while log.open():
                JobResizer(slurm, log, clock=itertools.count(1e12, 40.0).__next__).round()
        except CrashError:
            log.close()
            log = IntentLog(path)
        else:
            break
    (found,) = log.of_job(7)
    log.close()
    return found


CUTS = [(cut, after) for cut in range(3) for after in (False, True)]


@pytest.mark.parametrize(("cut", "after"), CUTS, ids=str)
def test_a_requeue_interrupted_anywhere_completes_and_signals_the_job_once(tmp_path, cut, after):
    slurm = SmallSlurm(cut=cut, after=after)
    done = carried_out(slurm, tmp_path / "state.db", GROW)
    assert (done.stage, slurm.now.nodes, slurm.now.running) == (IntentStage.DONE, 6, True)
    assert slurm.given.count("ask") == 1
    assert slurm.now.restarts == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_shrink_cut_off_is_given_once(tmp_path, after):
    slurm = SmallSlurm(cut=0, after=after)
    done = carried_out(slurm, tmp_path / "state.db", SHRINK)
    assert (done.stage, slurm.now.nodes) == (IntentStage.DONE, 2)
    assert slurm.given == ["shrink"]


def test_a_size_that_slurm_refuses_releases_the_job_unchanged(tmp_path):
    slurm = SmallSlurm(refuse=("size",))
    done = carried_out(slurm, tmp_path / "state.db", GROW)
    assert done.stage is IntentStage.FAILED
    assert "not available" in done.outcome
    assert (slurm.now.nodes, slurm.now.running) == (4, True)


def test_a_job_has_one_change_at_a_time(tmp_path):
    log = IntentLog(tmp_path / "state.db")
    log.plan(GROW)
    with pytest.raises(InputError, match="being resized already"):
        log.plan(SHRINK)
    log.close()


@pytest.mark.parametrize(
    ("intent", "job", "step"),
    [
        (GROW, JOB, ResizeStep.ASK),
        (GROW, None, ResizeStep.CLOSE),
        (GROW, replace(JOB, states=("COMPLETED",)), ResizeStep.CLOSE),
        (GROW, replace(HELD, priority=9, reason=""), ResizeStep.CLOSE),
        (replace(GROW, stage=IntentStage.ASKED, changed_s=950.0, attempts=1), JOB, ResizeStep.WAIT),
        (replace(GROW, stage=IntentStage.ASKED, changed_s=800.0, attempts=1), JOB, ResizeStep.ASK),
        (replace(GROW, stage=IntentStage.ASKED, changed_s=800.0, attempts=2), JOB, ResizeStep.CLOSE),
        (
            replace(GROW, stage=IntentStage.ASKED),
            replace(JOB, states=("RUNNING", "COMPLETING")),
            ResizeStep.WAIT,
        ),
        (
            replace(GROW, stage=IntentStage.ASKED),
            replace(HELD, priority=9, reason="BeginTime"),
            ResizeStep.SIZE,
        ),
        (replace(GROW, stage=IntentStage.ASKED), replace(JOB, restarts=1), ResizeStep.CLOSE),
        (replace(GROW, stage=IntentStage.SIZED), replace(HELD, nodes=6), ResizeStep.RELEASE),
        (
            replace(GROW, stage=IntentStage.RELEASED),
            replace(HELD, nodes=6, priority=9, reason="Resources"),
            ResizeStep.WAIT,
        ),
        (SHRINK, JOB, ResizeStep.SHRINK),
        (SHRINK, replace(JOB, nodes=3), ResizeStep.CLOSE),
        (replace(SHRINK, stage=IntentStage.ASKED, changed_s=990.0), JOB, ResizeStep.WAIT),
        (replace(SHRINK, stage=IntentStage.ASKED, changed_s=9000.0, attempts=1), JOB, ResizeStep.SHRINK),
    ],
    ids=str,
)
def test_the_next_step_follows_from_the_job(intent, job, step):
    assert next_step(intent, job, now_s=1000.0).step is step


def test_no_step_cancels():
    assert not [step for step in ResizeStep if "cancel" in step]
    assert set(CLOSED) == {IntentStage.DONE, IntentStage.FAILED, IntentStage.OVERTAKEN}


def test_the_same_notice_is_sent_once_a_day(tmp_path):
    log = IntentLog(tmp_path / "state.db")
    sent = [log.claim_notice(7, "mail", text, again_s=100.0, now_s=at) for text, at in
            (("flag", 0.0), ("flag", 50.0), ("shrink", 60.0), ("shrink", 161.0))]  # fmt: skip
    assert sent == [True, False, True, True]
    log.close()
