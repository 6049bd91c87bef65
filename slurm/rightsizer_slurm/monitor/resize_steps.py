"""Resizes a job step by step; the next step follows from the job's present state. Never cancels a job.

`next_step` is pure. `Resizer` stores each step in the intent log before it gives the command, so that after a
crash the next round continues from the job's state. A job never stays held: if Slurm refuses the new size,
the job is released at its old size.
"""

import enum
import time
from collections.abc import Callable
from dataclasses import replace

from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.backends import Backend, unavailable
from rightsizer_slurm.cluster.jobs import RUNNING, SlurmJob
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.monitor.intent_log import CLOSED, Intent, IntentLog, IntentStage, Kind

_MOST_ATTEMPTS = 2
_SLOW = "the job did not save and stop in time; it keeps running"
_SHRINK_SEEN_S = 30.0
"""A shrink takes effect at once. If it has not after this time, the command was never given."""


class ResizeStep(enum.StrEnum):
    """The next action."""

    WAIT = "wait"
    ASK = "ask"
    SHRINK = "shrink"
    SIZE = "size"
    RELEASE = "release"
    UNDO = "undo"
    CLOSE = "close"


@immutable
class Next:
    """A step; if it closes the intent, its final stage and outcome."""

    step: ResizeStep
    stage: IntentStage | None = None
    outcome: str = ""


def next_step(intent: Intent, job: SlurmJob | None, *, now_s: float) -> Next:
    """The next step of an intent, from the state of its job."""
    if job is None or not job.live:
        state = "no longer exists" if job is None else f"is {job.state}"
        return _closed(IntentStage.OVERTAKEN, f"the job {state}")
    if intent.kind is not Kind.REQUEUE:
        part = _shrink if intent.kind is Kind.SHRINK else _suspend
        return part(intent, job, now_s=now_s)
    if job.running:
        return _running(intent, job, now_s=now_s)
    return _waiting(intent, job) if job.pending else Next(step=ResizeStep.WAIT)


def _shrink(intent: Intent, job: SlurmJob, *, now_s: float) -> Next:
    if not job.running:
        completing = job.state == RUNNING
        return (
            Next(step=ResizeStep.WAIT)
            if completing
            else _closed(IntentStage.OVERTAKEN, f"the job is {job.state}")
        )
    if job.nodes == intent.to_nodes and intent.stage is not IntentStage.PLANNED:
        return _closed(IntentStage.DONE, f"runs on {job.nodes} nodes")
    if job.nodes != intent.from_nodes or job.restarts != intent.restarts:
        return _closed(IntentStage.OVERTAKEN, f"changed by someone else: it has {job.nodes} nodes")
    return _asked(intent, ResizeStep.SHRINK, "Slurm removed no node", now_s=now_s, timeout_s=_SHRINK_SEEN_S)


def _suspend(intent: Intent, job: SlurmJob, *, now_s: float) -> Next:
    if job.running and job.restarts > intent.restarts:
        return _closed(IntentStage.OVERTAKEN, "the job has been released and runs again")
    if job.running:
        return _asked(intent, ResizeStep.ASK, _SLOW, now_s=now_s, timeout_s=intent.stop_timeout_s)
    if job.pending and intent.stage is IntentStage.PLANNED:
        return _closed(IntentStage.OVERTAKEN, "the job is already pending: someone else requeued it")
    if job.held:
        return _closed(IntentStage.DONE, f"saved and held; scontrol release {job.job_id} continues it")
    return Next(step=ResizeStep.WAIT)


def _running(intent: Intent, job: SlurmJob, *, now_s: float) -> Next:
    again = job.restarts > intent.restarts
    if again and job.nodes == intent.to_nodes:
        return _closed(IntentStage.DONE, f"runs on {job.nodes} nodes")
    if again or intent.stage in {IntentStage.SIZED, IntentStage.RELEASED, IntentStage.UNDOING}:
        stage = (
            IntentStage.OVERTAKEN
            if intent.stage in {IntentStage.PLANNED, IntentStage.ASKED}
            else IntentStage.FAILED
        )
        return _closed(stage, f"runs again on {job.nodes} nodes, not {intent.to_nodes}")
    return _asked(intent, ResizeStep.ASK, _SLOW, now_s=now_s, timeout_s=intent.stop_timeout_s)


def _asked(intent: Intent, step: ResizeStep, slow: str, *, now_s: float, timeout_s: float) -> Next:
    """Give the command, wait, give it once more, then fail."""
    if intent.stage is IntentStage.PLANNED:
        return Next(step=step)
    if 0 <= now_s - intent.changed_s < timeout_s:  # negative: the clock was set back
        return Next(step=ResizeStep.WAIT)
    return Next(step=step) if intent.attempts < _MOST_ATTEMPTS else _closed(IntentStage.FAILED, slow)


def _waiting(intent: Intent, job: SlurmJob) -> Next:
    if intent.stage is IntentStage.PLANNED:
        return _closed(IntentStage.OVERTAKEN, "the job is already pending: someone else requeued it")
    undoing = intent.stage is IntentStage.UNDOING
    if not job.held:
        if (
            intent.stage is IntentStage.ASKED
        ):  # requeued by itself or by Slurm: no hold is needed before it starts
            return Next(step=ResizeStep.SIZE)
        return _closed(IntentStage.FAILED, intent.outcome) if undoing else Next(step=ResizeStep.WAIT)
    if undoing:
        return Next(step=ResizeStep.UNDO)
    sized = job.nodes == intent.to_nodes and intent.stage is not IntentStage.ASKED
    return Next(step=ResizeStep.RELEASE if sized else ResizeStep.SIZE)


def _closed(stage: IntentStage, outcome: str) -> Next:
    return Next(step=ResizeStep.CLOSE, stage=stage, outcome=outcome)


class JobResizer:
    """Executes intents."""

    def __init__(
        self, backend: Backend, intents: IntentLog, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._backend = backend
        self._intents = intents
        self._clock = clock

    def round(self) -> tuple[Intent, ...]:
        """One step of every open intent; returns the closed ones. SlurmError if Slurm is unavailable."""
        pending = self._intents.open()
        if not pending:
            return ()
        jobs = {job.job_id: job for job in self._backend.jobs()}
        after = [self.advance(intent, jobs.get(intent.job_id)) for intent in pending]
        return tuple(intent for intent in after if intent.stage in CLOSED)

    def advance(self, intent: Intent, job: SlurmJob | None) -> Intent:
        """One step of one intent."""
        step = next_step(intent, job, now_s=self._clock())
        if step.step is ResizeStep.WAIT:
            return intent
        if step.step is ResizeStep.CLOSE and step.stage is not None:
            return self._intents.write(replace(intent, stage=step.stage, outcome=step.outcome))
        try:
            return self._do(step.step, intent)
        except SlurmError as error:
            if unavailable(error):
                raise  # no answer from Slurm: retry the step later
            return self._refused(step.step, intent, str(error))

    def _attempted(self, intent: Intent) -> Intent:
        return self._intents.write(replace(intent, stage=IntentStage.ASKED, attempts=intent.attempts + 1))

    def _do(self, step: ResizeStep, intent: Intent) -> Intent:
        """Store the stage, then give the command."""
        job_id, nodes = intent.job_id, intent.to_nodes
        if step is ResizeStep.ASK:
            intent = self._attempted(intent)
            self._backend.signal_script(job_id, "USR2")
        elif step is ResizeStep.SHRINK:
            intent = self._attempted(intent)
            self._backend.shrink(job_id, nodes=nodes)
        elif step is ResizeStep.SIZE:
            intent = self._intents.write(replace(intent, stage=IntentStage.SIZED))
            self._backend.resize(job_id, nodes=nodes, tasks=nodes, cpus=nodes * intent.node_cores)
        elif step is ResizeStep.RELEASE:
            intent = self._intents.write(replace(intent, stage=IntentStage.RELEASED))
            self._backend.release(job_id)
        elif step is ResizeStep.UNDO:
            self._backend.release(job_id)
            intent = self._intents.write(replace(intent, stage=IntentStage.FAILED))
        return intent

    def _refused(self, step: ResizeStep, intent: Intent, outcome: str) -> Intent:
        """Slurm refused: release a job that was stopped for this at its old size."""
        if step in {ResizeStep.SIZE, ResizeStep.RELEASE}:
            return self._intents.write(replace(intent, stage=IntentStage.UNDOING, outcome=outcome))
        return self._intents.write(replace(intent, stage=IntentStage.FAILED, outcome=outcome))
