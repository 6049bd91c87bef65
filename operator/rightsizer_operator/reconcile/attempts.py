"""Attempts: what the journal's size means for the Job that runs, and the launch that it describes. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_operator.manifests.pod_spec import Launch, digest, elastic, worded
from rightsizer_operator.reconcile.persisted import Attempt, PersistedStatus
from rightsizer_operator.reconcile.size import RunningAttempt, pod_gpus
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.snapshot import AttemptJob

__all__ = ["attempted", "launch_of", "running_of"]


def attempted(
    state: ReconcileState,
    report: Mapping[str, Any],
    persisted: PersistedStatus,
    *,
    reason: str = "the plan changed",
    cause: str = "Plan",
) -> PersistedStatus:
    """The journal with this size, and with a new attempt if the running one cannot become it."""
    sized = replace(persisted, report=report)
    old, job, now = persisted.attempt, state.job, state.snapshot.now
    launch = launch_of(replace(state, persisted=sized), attempt=old.number if old else 1)
    told = digest(launch)  # refuses here what could not be launched
    name = state.plan.metadata.name
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
        noted = persisted.resized(report, reason=reason, cause=cause, now=now) if changed else persisted
        return replace(sized, attempt=attempt, resizes=noted.resizes)
    number = old.number + 1
    attempt = Attempt(
        number=number, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, number)
    )
    noted = persisted.resized(report, reason=f"{reason}: attempt {number}", cause=cause, now=now)
    return replace(sized, attempt=attempt, resizes=noted.resizes)


def _fits(job: AttemptJob, launch: Launch) -> bool:
    """Whether this Job can take the size: finished ones and those that are not elastic only their own."""
    return job.parallelism == launch.pods or (job.elastic and not job.finished and not job.deleting)


def launch_of(state: ReconcileState, *, attempt: int) -> Launch:
    """The launch that the journal describes."""
    report, job = state.persisted.report or {}, state.job
    layout = state.persisted.layout
    kind = report["gpuType"]
    keep = job is not None and job.elastic and elastic(state.plan, layout, state.snapshot.queue)
    size = job.gpus_per_pod if job is not None else 0
    if not (keep and size) or layout.gpus % size:
        size = pod_gpus(layout, -(-report["gpus"] // max(1, report["nodes"])))
    batch = report["globalBatchSequences"]
    workload, flags = worded(state.plan, layout, batch=batch)
    return Launch(
        plan=state.plan,
        owner_uid=state.snapshot.plan["metadata"]["uid"],
        attempt=attempt,
        layout=layout,
        batch=batch,
        gpus_per_pod=size,
        gpu_type=kind,
        interval_s=report["checkpointIntervalSeconds"],
        step_s=report["stepSeconds"],
        workload=workload,
        flags=flags,
        products=state.snapshot.inventory.products(kind),
        queue=state.snapshot.queue,
        settings=state.snapshot.settings,
    )


def running_of(state: ReconcileState) -> RunningAttempt | None:
    """What the attempt in progress fixes for a new size; nothing before there is one."""
    persisted, job = state.persisted, state.job
    if persisted.report is None or persisted.attempt is None or persisted.attempt.started is None:
        return None
    layout = persisted.layout
    return RunningAttempt(
        layout=layout,
        batch=persisted.report["globalBatchSequences"],
        elastic=elastic(state.plan, layout, state.snapshot.queue) and job is not None and job.is_active,
        gpu_type=persisted.report["gpuType"],
        tokens=float(persisted.observed.get("tokens", 0.0)),
        gpus=job.gpus if job is not None and job.is_active else 0,
    )
