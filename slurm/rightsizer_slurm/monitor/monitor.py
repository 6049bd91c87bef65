"""`rightsizer slurm monitor`: inspects every GPU job, decides, and acts within the action level of the site.

Each level includes those before it: `flag` (metrics, report, AdminComment), `mail`, `shrink` (take nodes from
a running elastic job), `requeue` (save, stop, change the size, continue). A job that `rightsizer sbatch` did
not submit is flagged at most. No job is ever cancelled.
"""

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.resize.types import Action, Decision, Mode, Scaling
from rightsizer_engine.units import format_duration
from rightsizer_launch.running.limits import Tuning
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.decide import ReportRow, decided, others_wait, scaling_of
from rightsizer_slurm.monitor.gpu_metrics import Metrics
from rightsizer_slurm.monitor.idle import IdleJobs, Suspension
from rightsizer_slurm.monitor.inspection import InspectedJob, live_gpu_jobs, monitored_job
from rightsizer_slurm.monitor.intent_log import Intent, IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.intents import failed_by, intent_for, plan_intent
from rightsizer_slurm.monitor.notices import Notices
from rightsizer_slurm.monitor.recorded import RecordMemory
from rightsizer_slurm.monitor.resize_steps import JobResizer
from rightsizer_slurm.monitor.settings import ActionLevel, MonitorSettings

_LOG = logging.getLogger("rightsizer.slurm.monitor")
_LOOKS_MISSED = 10
"""Looks without a job after which it is idle from the beginning again."""


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
        self._metrics = metrics
        self._clock = clock
        self._resizer = JobResizer(backend, intents, clock=clock)
        self._scalings: dict[tuple[int, float], Scaling | None] = {}
        self._records = RecordMemory(settings.tuning)
        self._idle = IdleJobs(break_s=_LOOKS_MISSED * settings.every_s)
        self._notices = Notices(backend, intents, settings, slurm=slurm or Slurm(), clock=clock)

    @property
    def failures(self) -> list[str]:
        """The commands that failed in the last sweep, but for those of the sweep itself."""
        return self._notices.failures

    def sweep(self) -> tuple[ReportRow, ...]:
        """Continue open resizes, inspect all jobs, decide, act. SlurmError if Slurm is unavailable."""
        self.failures.clear()
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
        return decided(
            monitored,
            gpu,
            scaling=self._scaling(monitored),
            tuning=self._tuning(),
            cluster=cluster,
            waiting=others_wait(jobs, job),
            intents=self._intents.of_job(job.job_id),
            now_s=self._clock(),
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
        self._notices.sized(row.monitored)  # first: what happened since is the newer note
        for record in row.monitored.given_up[-1:]:
            for failed in failed_by(record, self._intents.of_job(row.job.job_id)):
                self._intents.write(
                    replace(failed, stage=IntentStage.FAILED, outcome=one_line(record.outcome))
                )
            self._notices.rolled_back(row.job, record)
        suspension = self._suspension(row)
        if row.decision.action is Action.KEEP:
            return row
        self._notices.decided(row, suspension)
        level = self._settings.level
        intent = self._suspend(row, suspension) if suspension else intent_for(row, level)
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
        self._notices.idle(row, suspension)
        return None


def fault(error: Exception) -> str:
    """An unexpected error and its place in one line; its text can hold a user's text."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return one_line(f"{type(error).__name__}: {error}") + place
