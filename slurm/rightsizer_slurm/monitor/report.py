"""`rightsizer slurm report`: state, progress and recommendation of every live GPU job. Changes nothing."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from rightsizer_engine.resize.types import Action
from rightsizer_engine.units import format_count, format_duration
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_slurm.monitor.gpu_metrics import gpu_metrics
from rightsizer_slurm.monitor.intent_log import Intent, IntentLog
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.report_document import GpuJobDocument, ReportDocument, ResizeDocument
from rightsizer_slurm.monitor.settings import MonitorSettings
from rightsizer_telemetry.client import PrometheusSettings

HEADINGS = ("job", "user", "state", "where", "GPUs", "plan", "step", "tokens/s", "left", "says")
"""Columns of the table."""


@immutable
class JobsReport:
    """One line for each job, and the monitor's last resizes if its state file is readable."""

    rows: tuple[ReportRow, ...]
    intents: tuple[Intent, ...] = ()
    waiting: int = 0

    @property
    def summary(self) -> str:
        """The summary in one line."""
        running = sum(row.job.running for row in self.rows)
        flagged = sum(row.decision.action is Action.FLAG for row in self.rows)
        others = sum(row.decision.action not in {Action.KEEP, Action.FLAG} for row in self.rows)
        gpus = sum(row.job.gpus for row in self.rows if row.job.running)
        summary = f"{running} GPU jobs run on {gpus} GPUs, {self.waiting} wait"
        return f"{summary}; {flagged} flagged, another size recommended for {others}"


def look(
    backend: Backend,
    settings: MonitorSettings,
    *,
    slurm: Slurm,
    state: Path | None = None,
    prometheus: PrometheusSettings | None = None,
) -> JobsReport:
    """Inspect all jobs that this user may see."""
    metrics = gpu_metrics(prometheus, window_s=settings.tuning.least_window_s)
    monitor = Monitor(backend, IntentLog(":memory:"), settings, slurm=slurm, metrics=metrics)
    rows = monitor.look()
    intents: tuple[Intent, ...] = ()
    if state is not None and os.access(state, os.R_OK):
        log = IntentLog(state, read_only=True)
        intents = log.recent()
        log.close()
    return JobsReport(rows=rows, intents=intents, waiting=sum(row.job.pending for row in rows))


def table_row(row: ReportRow) -> tuple[str, ...]:
    """A job as one row of the table; unknown cells are empty."""
    job, reading, run = row.job, row.reading, row.monitored.run
    rate = "" if reading.tokens_per_s is None else format_count(reading.tokens_per_s)
    left = ""
    if run is not None and run.deadline_at_s is not None:
        left = format_duration(max(0.0, run.deadline_at_s - time.time()))
    advice = row.monitored.note or row.decision.reason
    if row.decision.action is not Action.KEEP:
        size = f" to {row.decision.gpus} GPUs" if row.decision.gpus != job.gpus else ""
        advice = f"{row.decision.action}{size}: {advice}"
    return (
        str(job.job_id),
        job.user,
        job.state.lower(),
        f"{job.partition} {job.node_list}".strip(),
        str(job.gpus),
        row.monitored.plan.metadata.name if row.monitored.plan else "",
        "" if reading.steps is None else str(reading.steps),
        rate,
        left,
        advice,
    )


def document(report: JobsReport) -> ReportDocument:
    """The report as JSON."""
    return ReportDocument(
        jobs=tuple(_job(row) for row in report.rows),
        resizes=tuple(
            ResizeDocument(
                job_id=intent.job_id,
                kind=str(intent.kind),
                from_nodes=intent.from_nodes,
                to_nodes=intent.to_nodes,
                stage=str(intent.stage),
                why=intent.reason,
                said=intent.outcome,
                began_seconds=intent.began_s,
            )
            for intent in report.intents
        ),
    )


def _job(row: ReportRow) -> GpuJobDocument:
    decision, reading, job = row.decision, row.reading, row.job
    return GpuJobDocument(
        job_id=job.job_id,
        user=job.user,
        state=job.state,
        partition=job.partition,
        nodes=job.nodes,
        gpus=job.gpus,
        plan=row.monitored.plan.metadata.name if row.monitored.plan else None,
        note=row.monitored.note or None,
        step=reading.steps,
        tokens=reading.tokens_done,
        tokens_per_second=reading.tokens_per_s,
        checkpoint_age_seconds=reading.checkpoint_age_s,
        action=decision.action,
        wants_gpus=decision.gpus,
        act=decision.act,
        withheld=decision.withheld or None,
        reason=decision.reason,
        evidence=decision.evidence,
        bottleneck=str(decision.bottleneck),
        confidence=decision.confidence,
    )


def resize_lines(intents: Sequence[Intent]) -> tuple[str, ...]:
    """The resizes, one line each."""
    return tuple(
        f"job {i.job_id}: {i.kind} {i.from_nodes} -> {i.to_nodes} nodes, {i.stage}"
        f" {format_duration(max(0.0, i.changed_s - i.began_s))} after its start: {i.outcome or i.reason}"
        for i in intents
    )
