"""`rightsizer slurm monitor`: inspects every GPU job, decides, and acts within the action level of the site.

Each level includes those before it: `flag` (metrics, report, AdminComment), `mail`, `shrink` (take nodes from
a running elastic job), `requeue` (save, stop, change the size, continue). A job that `rightsizer sbatch` did
not submit is flagged at most. No job is ever cancelled.
"""

import contextlib
import enum
import fcntl
import logging
import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path

from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import Action, Decision, Mode, Scaling
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import Tuning
from rightsizer_launch.worker_spec import grace_s
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.jobs import SlurmJob, decision_of
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.monitor.decide import (
    history,
    margin_s,
    others_wait,
    policy_inputs,
    reading_for,
    scaling_of,
)
from rightsizer_slurm.monitor.gpu_metrics import Metrics
from rightsizer_slurm.monitor.idle import IdleJobs, Suspension
from rightsizer_slurm.monitor.inspection import InspectedJob, live_gpu_jobs, monitored_job
from rightsizer_slurm.monitor.intent_log import Intent, IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.notify import mail, mail_program
from rightsizer_slurm.monitor.recorded import RecordMemory
from rightsizer_slurm.monitor.resize_steps import JobResizer
from rightsizer_slurm.monitor.size_history import SizeRecord

_LOG = logging.getLogger("rightsizer.slurm.monitor")
_DAY_S = 86_400.0
_LOOKS_MISSED = 10
"""Looks without a job after which it is idle from the beginning again."""
_SAVE_SLACK_S = 120.0
"""Added to a job's grace period for torchrun's stop and Slurm's requeue."""


class ActionLevel(enum.StrEnum):
    """The most that the monitor does on its own."""

    FLAG = "flag"
    MAIL = "mail"
    SHRINK = "shrink"
    REQUEUE = "requeue"

    def allows(self, other: "ActionLevel") -> bool:
        """Whether this level includes another."""
        order = list(ActionLevel)
        return order.index(other) <= order.index(self)


@immutable
class MonitorSettings:
    """The monitor's settings. `annotate` writes AdminComment, which needs the rights of a Slurm operator.

    `runs` is the folder to which jobs copy their records if their home is private.
    """

    level: ActionLevel = ActionLevel.FLAG
    every_s: float = 30.0
    annotate: bool = False
    runs: Path | None = None
    tuning: Tuning = field(default_factory=Tuning)


@immutable
class ReportRow:
    """One job in one sweep: its run, its measurements, the engine's decision.

    `margin_s` is its deadline minus its expected end, negative if it will be late; None if unknown.
    """

    monitored: InspectedJob
    reading: Reading
    decision: Decision
    intent: Intent | None = None
    margin_s: float | None = None

    @property
    def job(self) -> SlurmJob:
        """The job."""
        return self.monitored.job


class Monitor:
    """Runs sweeps. `metrics` reads the jobs' GPU metrics by id; without it only their records count."""

    def __init__(
        self,
        backend: Backend,
        intents: IntentLog,
        settings: MonitorSettings,
        *,
        slurm: Slurm | None = None,
        metrics: Metrics = lambda _jobs: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._backend = backend
        self._intents = intents
        self._settings = settings
        self._slurm = slurm or Slurm()
        self._metrics = metrics
        self._clock = clock
        self._resizer = JobResizer(backend, intents, clock=clock)
        self._scalings: dict[tuple[int, float], Scaling | None] = {}
        self._records = RecordMemory(settings.tuning)
        self._idle = IdleJobs(break_s=_LOOKS_MISSED * settings.every_s)
        self.failures: list[str] = []

    def sweep(self) -> tuple[ReportRow, ...]:
        """Continue open resizes, inspect all jobs, decide, act. SlurmError if Slurm is unavailable."""
        self.failures = []
        for closed in self._resizer.round():
            text = f"{closed.kind} to {closed.to_nodes} nodes: {closed.stage}, {closed.outcome}"
            _LOG.info("job %s: %s", closed.job_id, one_line(text))
        return tuple(self._isolated(row.job, partial(self._acted, row)) for row in self.look())

    def look(self) -> tuple[ReportRow, ...]:
        """Inspect all jobs and decide; changes nothing."""
        jobs = self._backend.jobs()
        cluster = self._backend.cluster()
        live = live_gpu_jobs(jobs)
        for memory in (self._records, self._idle):
            memory.forget(but={job.job_id for job in live})
        measured = self._metrics(live)
        return tuple(
            self._isolated(job, partial(self._row, job, jobs, cluster, measured.get(job.job_id)))
            for job in live
        )

    def _isolated(self, job: SlurmJob, make: Callable[[], ReportRow]) -> ReportRow:
        """The row that `make` makes; a fault that one job triggers must not stop the others."""
        try:
            return make()
        except SlurmError:
            raise
        except Exception as error:
            _LOG.error("job %s: internal error: %s", job.job_id, fault(error))
            note = "internal error; the monitor's log has it"
            return ReportRow(
                monitored=InspectedJob(job=job, note=note),
                reading=Reading(),
                decision=Decision(action=Action.KEEP, gpus=job.gpus, act=False, reason=note),
            )

    def _row(
        self,
        job: SlurmJob,
        jobs: Sequence[SlurmJob],
        cluster: SlurmCluster,
        gpu: Reading | Missing | None,
    ) -> ReportRow:
        monitored = monitored_job(job, runs=self._settings.runs, memory=self._records)
        now_s = self._clock()
        tuning = self._tuning()
        reading = reading_for(monitored, gpu, tuning=tuning, now_s=now_s)
        running, limits = policy_inputs(
            monitored,
            reading,
            scaling=self._scaling(monitored),
            tuning=tuning,
            cluster=cluster,
            waiting=others_wait(jobs, job),
            now_s=now_s,
        )
        past = history(
            self._intents.of_job(job.job_id),
            monitored.run.node_gpus if monitored.run else 1,
            monitored.given_up,
            monitored.marks,
        )
        decision = decide(reading, running, limits, past, now_s=now_s)
        if isinstance(gpu, Missing):
            decision = replace(decision, reason=str(gpu), missing=gpu)
        return ReportRow(
            monitored=monitored,
            reading=reading,
            decision=decision,
            margin_s=margin_s(monitored, reading, now_s=now_s),
        )

    def _tuning(self) -> Tuning:
        """Below the level `shrink` the engine may only recommend."""
        acts = self._settings.level.allows(ActionLevel.SHRINK)
        return replace(self._settings.tuning, cap=Mode.AUTO if acts else Mode.RECOMMEND)

    def _scaling(self, monitored: InspectedJob) -> Scaling | None:
        if monitored.run is None or not monitored.ours:
            return None
        key = (monitored.job.job_id, monitored.run.submitted_at_s)
        if key not in self._scalings:
            try:
                self._scalings[key] = scaling_of(monitored)
            except RightsizerError as error:
                _LOG.warning("job %s cannot be sized: %s", monitored.job.job_id, one_line(str(error)))
                self._scalings[key] = None
        return self._scalings[key]

    def _acted(self, row: ReportRow) -> ReportRow:
        self._announce(row.monitored)  # first: what happened since is the newer note
        for record in row.monitored.given_up[-1:]:
            self._failed(row, record)
        decision, suspension = row.decision, self._suspension(row)
        if decision.action is Action.KEEP:
            return row
        withheld = f" ({decision.withheld})" if decision.withheld else ""
        warning = f"; {suspension.warning}" if suspension else ""
        notice = one_line(f"{decision.action}: {decision.reason}{withheld}{warning}", 200)
        for channel, send in (("comment", self._annotate), ("mail", self._mail)):
            send(row, channel, notice)
        intent = intent_for(row, self._settings.level)
        if suspension:
            intent = self._suspend(row, suspension)
        if intent is None:
            return row
        with contextlib.suppress(InputError):  # the job is being resized already
            return replace(row, intent=self._resizer.advance(self._intents.plan(intent), row.job))
        return row

    def _suspension(self, row: ReportRow) -> Suspension | None:
        """When the job is suspended for being idle; None below the level `requeue`."""
        seen = self._idle.seen(row.monitored, row.decision, row.reading.phase, now_s=self._clock())
        return seen if self._settings.level.allows(ActionLevel.REQUEUE) else None

    def _suspend(self, row: ReportRow, suspension: Suspension) -> Intent | None:
        """The suspension if it is due; before, the warning in the job's output. Once for each start."""
        earlier = self._intents.of_job(row.job.job_id)
        if any(each.kind is Kind.SUSPEND and each.restarts == row.job.restarts for each in earlier):
            return None
        if suspension.due:
            reason = f"{row.decision.reason}, for {format_duration(self._clock() - suspension.since_s)}"
            return plan_intent(row.monitored, nodes=row.job.nodes, kind=Kind.SUSPEND, reason=reason)
        text = f"rightsizer: {row.decision.reason}; {suspension.warning}"
        if self._intents.claim_notice(
            row.job.job_id, "idle", suspension.warning, again_s=math.inf, now_s=self._clock()
        ):
            self._try(row.job, lambda: self._backend.notify(row.job.job_id, one_line(text, 400)))
        return None

    def _announce(self, monitored: InspectedJob) -> None:
        """Write the size that a running job got at submission into the log and the job's output, once.

        The script of `rightsizer sbatch` writes its output itself; a terminal has had its line at submission.
        """
        job, noted = monitored.job, decision_of(monitored.job.admin_comment)
        size = one_line(noted or (monitored.run.decision if monitored.run else ""), 600)
        if not (size and job.running):
            return
        if self._intents.claim_notice(job.job_id, "size", size, again_s=math.inf, now_s=self._clock()):
            _LOG.info("job %s of %s: sized: %s", job.job_id, one_line(job.user), size)
            if self._settings.annotate and not noted:
                self._try(job, lambda: self._backend.annotate(job.job_id, one_line(size, 200)))
            if noted and job.batch:
                self._try(job, lambda: self._backend.notify(job.job_id, f"rightsizer: sized: {size}"))

    def _failed(self, row: ReportRow, record: SizeRecord) -> None:
        """Mark the resize to a size that completed no step as failed, and notify once."""
        outcome = one_line(record.outcome)
        for intent in failed_by(record, self._intents.of_job(row.job.job_id)):
            self._intents.write(replace(intent, stage=IntentStage.FAILED, outcome=outcome))
        text = f"{record.restart} {outcome}"
        if not self._intents.claim_notice(record.job_id, "back", text, again_s=math.inf, now_s=self._clock()):
            return
        _LOG.info("job %s: resize failed: %s", record.job_id, outcome)
        notice = one_line(f"resize failed: {outcome}", 200)
        if self._settings.annotate:
            self._try(row.job, lambda: self._backend.annotate(record.job_id, notice))
        if self._settings.level.allows(ActionLevel.MAIL):
            subject = f"rightsizer: job {record.job_id} {row.job.name}: resize failed"
            self._try(row.job, lambda: self._send(row.job.user, subject, notice))

    def _annotate(self, row: ReportRow, channel: str, notice: str) -> None:
        if self._settings.annotate and self._is_new(row, channel, notice):
            self._try(row.job, lambda: self._backend.annotate(row.job.job_id, notice))

    def _mail(self, row: ReportRow, channel: str, notice: str) -> None:
        if self._settings.level.allows(ActionLevel.MAIL) and self._is_new(row, channel, row.decision.action):
            subject = f"rightsizer: job {row.job.job_id} {row.job.name}: {row.decision.action}"
            text = "\n".join((notice, *row.decision.evidence))
            self._try(row.job, lambda: self._send(row.job.user, subject, text))

    def _is_new(self, row: ReportRow, channel: str, text: str) -> bool:
        return self._intents.claim_notice(row.job.job_id, channel, text, again_s=_DAY_S, now_s=self._clock())

    def _send(self, user: str, subject: str, text: str) -> None:
        program = mail_program(self._slurm)
        if program:
            mail(program, user=user, subject=subject, text=text)

    def _try(self, job: SlurmJob, act: Callable[[], None]) -> None:
        """Send a notice; a failure is logged and the sweep continues."""
        try:
            act()
        except SlurmError as error:
            self.failures.append(error.command)
            _LOG.warning("job %s: %s", job.job_id, one_line(str(error)))


def fault(error: Exception) -> str:
    """An unexpected error and its place in one line; its text can hold a user's text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return one_line(f"{type(error).__name__}: {error}") + place


def failed_by(record: SizeRecord, intents: Sequence[Intent]) -> tuple[Intent, ...]:
    """The closed resize that led to a size that completed no step: DONE means only that the job started."""
    resizes = [intent for intent in intents if intent.kind is not Kind.SUSPEND]
    causes = [i for i in resizes if i.to_nodes == record.nodes and i.restarts < record.restart]
    return tuple(intent for intent in causes[-1:] if intent.stage is IntentStage.DONE)


def intent_for(row: ReportRow, level: ActionLevel) -> Intent | None:
    """The resize for a decision, within the action level; None if there is none."""
    decision, monitored = row.decision, row.monitored
    if (
        not decision.act
        or monitored.run is None
        or not monitored.run.elastic
        or not decision.in_place
        or not row.job.running
    ):
        return None
    if decision.action not in {Action.GROW, Action.SHRINK}:
        return None
    nodes = decision.gpus // monitored.run.node_gpus
    kind = Kind.SHRINK if decision.action is Action.SHRINK else Kind.REQUEUE
    if nodes == row.job.nodes or not level.allows(ActionLevel(str(kind))):
        return None
    if kind is Kind.REQUEUE and (not row.job.requeue or row.reading.checkpoint_age_s is None):
        return None
    return plan_intent(monitored, nodes=nodes, kind=kind, reason=decision.reason)


def plan_intent(monitored: InspectedJob, *, nodes: int, kind: Kind, reason: str) -> Intent:
    """An intent for the job in its present state."""
    assert monitored.run is not None  # callers have checked it
    return Intent(
        job_id=monitored.job.job_id,
        kind=kind,
        from_nodes=monitored.job.nodes,
        to_nodes=nodes,
        node_cores=monitored.run.node_cores,
        restarts=monitored.job.restarts,
        stop_timeout_s=grace_s(monitored.plan) + _SAVE_SLACK_S,
        reason=one_line(reason),
    )


class BusyError(InputError):
    """Another monitor uses the same state file."""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the state file's lock: one monitor at a time. BusyError if another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise InputError("--state", value=str(path), remedy=f"cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("--state", value=str(path), remedy="another monitor uses it") from None
        yield
