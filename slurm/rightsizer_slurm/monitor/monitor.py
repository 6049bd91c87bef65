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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

from rightsizer.domain.reading import Reading
from rightsizer.errors import InputError, RightsizerError
from rightsizer.resize.policy import decide
from rightsizer.resize.types import Action, Decision, Mode, Scaling
from rightsizer.values import immutable
from rightsizer_launch.resize_inputs import Tuning
from rightsizer_launch.worker_spec import grace_s
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.jobs import SlurmJob
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
from rightsizer_slurm.monitor.gpu_metrics import lack
from rightsizer_slurm.monitor.inspection import Watched, live_gpu_jobs, watched
from rightsizer_slurm.monitor.intent_log import Intent, IntentLog, Kind, Stage
from rightsizer_slurm.monitor.notify import mail, mail_program
from rightsizer_slurm.monitor.resize_steps import Resizer
from rightsizer_slurm.monitor.size_history import Sized

__all__ = [
    "ActionLevel",
    "BusyError",
    "Line",
    "Monitor",
    "Settings",
    "alone",
    "failed_by",
    "intent_for",
    "plan_intent",
]

_LOG = logging.getLogger("rightsizer.slurm.monitor")
_DAY_S = 86_400.0
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
class Settings:
    """The monitor's settings. `annotate` writes AdminComment, which needs the rights of a Slurm operator."""

    level: ActionLevel = ActionLevel.FLAG
    every_s: float = 30.0
    annotate: bool = False
    tuning: Tuning = field(default_factory=Tuning)


@immutable
class Line:
    """One job in one sweep: its run, its measurements, the engine's decision.

    `margin_s` is its deadline minus its expected end, negative if it will be late; None if unknown.
    """

    watched: Watched
    reading: Reading
    decision: Decision
    intent: Intent | None = None
    margin_s: float | None = None

    @property
    def job(self) -> SlurmJob:
        """The job."""
        return self.watched.job


class Monitor:
    """Runs sweeps. `metrics` reads the jobs' GPU metrics by id; without it only their records count."""

    def __init__(
        self,
        backend: Backend,
        intents: IntentLog,
        settings: Settings,
        *,
        slurm: Slurm | None = None,
        metrics: Callable[[Sequence[SlurmJob]], dict[int, Reading]] = lambda _jobs: {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._backend = backend
        self._intents = intents
        self._settings = settings
        self._slurm = slurm or Slurm()
        self._metrics = metrics
        self._clock = clock
        self._resizer = Resizer(backend, intents, clock=clock)
        self._scalings: dict[tuple[int, float], Scaling | None] = {}
        self.failures: list[str] = []

    def sweep(self) -> tuple[Line, ...]:
        """Continue open resizes, inspect all jobs, decide, act. SlurmError if Slurm is unavailable."""
        self.failures = []
        for closed in self._resizer.round():
            text = f"{closed.kind} to {closed.to_nodes} nodes: {closed.stage}, {closed.outcome}"
            _LOG.info("job %s: %s", closed.job_id, one_line(text))
        lines = tuple(self._acted(line) for line in self.look())
        for line in lines:
            for row in line.watched.given_up[-1:]:
                self._failed(line, row)
        return lines

    def look(self) -> tuple[Line, ...]:
        """Inspect all jobs and decide; changes nothing."""
        jobs = self._backend.jobs()
        here = self._backend.cluster()
        live = live_gpu_jobs(jobs)
        measured = self._metrics(live)
        return tuple(self._line(job, jobs, here, measured.get(job.job_id)) for job in live)

    def _line(self, job: SlurmJob, jobs: Sequence[SlurmJob], here: SlurmCluster, gpu: Reading | None) -> Line:
        one, now_s = watched(job), self._clock()
        tuning, unseen = self._tuning(), lack(gpu)
        reading = reading_for(one, gpu, unseen=unseen, tuning=tuning, now_s=now_s)
        running, limits = policy_inputs(
            one,
            reading,
            scaling=self._scaling(one),
            tuning=tuning,
            here=here,
            waiting=others_wait(jobs, job),
            now_s=now_s,
        )
        past = history(self._intents.of_job(job.job_id), one.run.node_gpus if one.run else 1, one.given_up)
        made = decide(reading, running, limits, past, now_s=now_s)
        if unseen:
            made = replace(made, reason=f"unknown: {unseen}")
        return Line(watched=one, reading=reading, decision=made, margin_s=margin_s(one, reading, now_s=now_s))

    def _tuning(self) -> Tuning:
        """Below the level `shrink` the engine may only recommend."""
        acts = self._settings.level.allows(ActionLevel.SHRINK)
        return replace(self._settings.tuning, cap=Mode.AUTO if acts else Mode.RECOMMEND)

    def _scaling(self, one: Watched) -> Scaling | None:
        if one.run is None or not one.ours:
            return None
        key = (one.job.job_id, one.run.submitted_at_s)
        if key not in self._scalings:
            try:
                self._scalings[key] = scaling_of(one)
            except RightsizerError as error:
                _LOG.warning("job %s cannot be sized: %s", one.job.job_id, one_line(str(error)))
                self._scalings[key] = None
        return self._scalings[key]

    def _acted(self, line: Line) -> Line:
        made = line.decision
        if made.action is Action.KEEP:
            return line
        withheld = f" ({made.withheld})" if made.withheld else ""
        notice = one_line(f"{made.action}: {made.reason}{withheld}", 200)
        for channel, send in (("comment", self._annotate), ("mail", self._mail)):
            send(line, channel, notice)
        intent = intent_for(line, self._settings.level)
        if intent is None:
            return line
        with contextlib.suppress(InputError):  # the job is being resized already
            return replace(line, intent=self._resizer.advance(self._intents.plan(intent), line.job))
        return line

    def _failed(self, line: Line, row: Sized) -> None:
        """Mark the resize as failed whose size made no step, and report it once."""
        outcome = one_line(row.outcome)
        for intent in failed_by(row, self._intents.of_job(line.job.job_id)):
            self._intents.write(replace(intent, stage=Stage.FAILED, outcome=outcome))
        text = f"{row.restart} {outcome}"
        if not self._intents.claim_notice(row.job_id, "back", text, again_s=math.inf, now_s=self._clock()):
            return
        _LOG.info("job %s: resize failed: %s", row.job_id, outcome)
        notice = one_line(f"resize failed: {outcome}", 200)
        if self._settings.annotate:
            self._try(line, lambda: self._backend.annotate(row.job_id, f"rightsizer/1 {notice}"))
        if self._settings.level.allows(ActionLevel.MAIL):
            subject = f"rightsizer: job {row.job_id} {line.job.name}: resize failed"
            self._try(line, lambda: self._send(line.job.user, subject, notice))

    def _annotate(self, line: Line, channel: str, notice: str) -> None:
        if self._settings.annotate and self._is_new(line, channel, notice):
            self._try(line, lambda: self._backend.annotate(line.job.job_id, f"rightsizer/1 {notice}"))

    def _mail(self, line: Line, channel: str, notice: str) -> None:
        if self._settings.level.allows(ActionLevel.MAIL) and self._is_new(
            line, channel, line.decision.action
        ):
            subject = f"rightsizer: job {line.job.job_id} {line.job.name}: {line.decision.action}"
            text = "\n".join((notice, *line.decision.evidence))
            self._try(line, lambda: self._send(line.job.user, subject, text))

    def _is_new(self, line: Line, channel: str, text: str) -> bool:
        return self._intents.claim_notice(line.job.job_id, channel, text, again_s=_DAY_S, now_s=self._clock())

    def _send(self, user: str, subject: str, text: str) -> None:
        program = mail_program(self._slurm)
        if program:
            mail(program, user=user, subject=subject, text=text)

    def _try(self, line: Line, act: Callable[[], None]) -> None:
        """Record a notice that cannot be sent; the sweep continues."""
        try:
            act()
        except SlurmError as error:
            self.failures.append(error.command)
            _LOG.warning("job %s: %s", line.job.job_id, one_line(str(error)))


def failed_by(row: Sized, intents: Sequence[Intent]) -> tuple[Intent, ...]:
    """The resize that led to a size without a step, if it counts as done: a start is not yet a step."""
    causes = [i for i in intents if i.to_nodes == row.nodes and i.restarts < row.restart]
    return tuple(intent for intent in causes[-1:] if intent.stage is Stage.DONE)


def intent_for(line: Line, level: ActionLevel) -> Intent | None:
    """The resize for a decision, within the action level; None if there is none."""
    made, one = line.decision, line.watched
    if not made.act or one.run is None or not one.run.elastic or not made.in_place or not line.job.running:
        return None
    if made.action not in {Action.GROW, Action.SHRINK}:
        return None
    nodes = made.gpus // one.run.node_gpus
    kind = Kind.SHRINK if made.action is Action.SHRINK else Kind.REQUEUE
    if nodes == line.job.nodes or not level.allows(ActionLevel(str(kind))):
        return None
    if kind is Kind.REQUEUE and (not line.job.requeue or line.reading.checkpoint_age_s is None):
        return None
    return plan_intent(one, nodes=nodes, kind=kind, reason=made.reason)


def plan_intent(one: Watched, *, nodes: int, kind: Kind, reason: str) -> Intent:
    """An intent for the job in its present state."""
    assert one.run is not None  # noqa: S101 - callers have checked it
    return Intent(
        job_id=one.job.job_id,
        kind=kind,
        from_nodes=one.job.nodes,
        to_nodes=nodes,
        node_cores=one.run.node_cores,
        restarts=one.job.restarts,
        stop_timeout_s=grace_s(one.plan) + _SAVE_SLACK_S,
        reason=one_line(reason),
    )


class BusyError(InputError):
    """Another monitor uses the same state file."""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the state file's lock: one monitor at a time. BusyError if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("--state", value=str(path), remedy="another monitor uses it") from None
        yield
