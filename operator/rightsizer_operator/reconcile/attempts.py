"""Attempts: what the journal's size means for the Job that runs, and the launch that it describes. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_operator.manifests.pod_spec import Launch, digest, elastic, worded
from rightsizer_operator.reconcile.persisted import Attempt, Journal
from rightsizer_operator.reconcile.size import Running, pod_gpus
from rightsizer_operator.reconcile.state import Case
from rightsizer_operator.values import names
from rightsizer_operator.values.snapshot import Job

__all__ = ["attempted", "launch_of", "running_of"]


def attempted(
    case: Case,
    report: Mapping[str, Any],
    journal: Journal,
    *,
    reason: str = "the plan changed",
    cause: str = "Plan",
) -> Journal:
    """The journal with this size, and with a new attempt if the running one cannot become it."""
    sized = replace(journal, report=report)
    old, job, now = journal.attempt, case.job, case.world.now
    launch = launch_of(replace(case, journal=sized), attempt=old.number if old else 1)
    told = digest(launch)  # refuses here what could not be launched
    name = case.plan.metadata.name
    if old is None:
        fresh = Attempt(
            number=1, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, 1)
        )
        return replace(sized, attempt=fresh)
    unstarted = old.started is None and job is None
    in_place = unstarted or (job is not None and job.digest == told and _fits(job, launch))
    if in_place:
        attempt = replace(old, gpus=report["gpus"], layout=report["layout"])
        changed = old.gpus != report["gpus"] and not unstarted
        noted = journal.resized(report, reason=reason, cause=cause, now=now) if changed else journal
        return replace(sized, attempt=attempt, resizes=noted.resizes)
    number = old.number + 1
    attempt = Attempt(
        number=number, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, number)
    )
    noted = journal.resized(report, reason=f"{reason}: attempt {number}", cause=cause, now=now)
    return replace(sized, attempt=attempt, resizes=noted.resizes)


def _fits(job: Job, launch: Launch) -> bool:
    """Whether this Job can take the size: finished ones and those that are not elastic only their own."""
    return job.parallelism == launch.pods or (job.elastic and not job.finished and not job.deleting)


def launch_of(case: Case, *, attempt: int) -> Launch:
    """The launch that the journal describes."""
    report, job = case.journal.report or {}, case.job
    layout = case.journal.layout
    kind = report["gpuType"]
    keep = job is not None and job.elastic and elastic(case.plan, layout, case.world.queue)
    size = job.gpus_per_pod if job is not None else 0
    if not (keep and size) or layout.gpus % size:
        size = pod_gpus(layout, -(-report["gpus"] // max(1, report["nodes"])))
    batch = report["globalBatchSequences"]
    workload, flags = worded(case.plan, layout, batch=batch)
    return Launch(
        plan=case.plan,
        owner_uid=case.world.plan["metadata"]["uid"],
        attempt=attempt,
        layout=layout,
        batch=batch,
        gpus_per_pod=size,
        gpu_type=kind,
        interval_s=report["checkpointIntervalSeconds"],
        step_s=report["stepSeconds"],
        workload=workload,
        flags=flags,
        products=case.world.inventory.products(kind),
        queue=case.world.queue,
        settings=case.world.settings,
    )


def running_of(case: Case) -> Running | None:
    """What the attempt in progress fixes for a new size; nothing before there is one."""
    journal, job = case.journal, case.job
    if journal.report is None or journal.attempt is None or journal.attempt.started is None:
        return None
    layout = journal.layout
    return Running(
        layout=layout,
        batch=journal.report["globalBatchSequences"],
        elastic=elastic(case.plan, layout, case.world.queue) and job is not None and job.lives,
        gpu_type=journal.report["gpuType"],
        tokens=float(journal.observed.get("tokens", 0.0)),
        gpus=job.gpus if job is not None and job.lives else 0,
    )
