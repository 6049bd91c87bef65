"""Attempts: whether the running Job can take the persisted size, and the launch of that size. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_launch.worker_spec import ElasticRange, Size, elastic_range, worker_spec
from rightsizer_operator.manifests.pod_spec import DIRECTORIES, Launch, digest
from rightsizer_operator.reconcile.persisted import Attempt, PersistedStatus
from rightsizer_operator.reconcile.size import RunningAttempt, pod_gpus_of
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
    """The persisted status with this size, and a new attempt unless the running one can take it in place."""
    sized = replace(persisted, report=report)
    old, job, now = persisted.attempt, state.job, state.snapshot.now
    launch = launch_of(replace(state, persisted=sized), attempt=old.number if old else 1)
    launch_digest = digest(launch)  # refuses a plan that cannot be launched
    name = state.plan.metadata.name
    if old is None:
        fresh = Attempt(
            number=1, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, 1)
        )
        return replace(sized, attempt=fresh)
    unstarted = old.started is None and job is None
    in_place = unstarted or (job is not None and job.digest == launch_digest and _fits(job, launch))
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
    """Whether this Job can take the launch's size; only a live elastic Job can take another than its own."""
    return job.parallelism == launch.pods or (job.elastic and not job.finished and not job.deleting)


def launch_of(state: ReconcileState, *, attempt: int) -> Launch:
    """The launch of the persisted size."""
    report, job, layout = state.persisted.report or {}, state.job, state.persisted.layout
    pod_gpus = job.gpus_per_pod if job is not None and job.elastic and _elastic(state).in_place else 0
    if not pod_gpus or layout.gpus % pod_gpus:
        pod_gpus = pod_gpus_of(report)
    size = Size(
        layout=layout,
        batch_sequences=report["globalBatchSequences"],
        step_s=report["stepSeconds"],
        checkpoint_interval_s=report["checkpointIntervalSeconds"],
    )
    return Launch(
        plan=state.plan,
        owner_uid=state.snapshot.plan["metadata"]["uid"],
        attempt=attempt,
        layout=layout,
        gpus_per_pod=pod_gpus,
        gpu_type=report["gpuType"],
        worker=worker_spec(state.plan, size, DIRECTORIES, movable=_movable(state)),
        products=state.snapshot.inventory.products(report["gpuType"]),
        queue=state.snapshot.queue,
        settings=state.snapshot.settings,
    )


def running_of(state: ReconcileState) -> RunningAttempt | None:
    """What the running attempt fixes for a new size; None before the first attempt starts."""
    persisted, job = state.persisted, state.job
    if persisted.report is None or persisted.attempt is None or persisted.attempt.started is None:
        return None
    elastic = _elastic(state).in_place and job is not None and job.is_active
    return RunningAttempt(
        layout=persisted.layout,
        batch=persisted.report["globalBatchSequences"],
        elastic=elastic,
        gpu_type=persisted.report["gpuType"],
        tokens=float(persisted.observed.get("tokens", 0.0)),
        pod_gpus=job.gpus_per_pod if job is not None and elastic else 0,
    )


def _elastic(state: ReconcileState) -> ElasticRange:
    return elastic_range(state.plan, state.persisted.layout, movable=_movable(state))


def _movable(state: ReconcileState) -> bool:
    """Whether pods can be added and removed one by one. Kueue places a job with a topology as a whole."""
    return not (state.snapshot.queue and state.snapshot.queue.levels)
