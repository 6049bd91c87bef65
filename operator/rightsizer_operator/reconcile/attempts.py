"""Attempts: whether the running Job can take the persisted size, and the launch of that size. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.spec.launch import Carrier
from rightsizer_launch.worker_spec import ElasticRange, Size, elastic_range, worker_spec
from rightsizer_operator.manifests.pod_spec import DIRECTORIES, AttemptLaunch, digest
from rightsizer_operator.reconcile.lifetime import active_deadline_s
from rightsizer_operator.reconcile.persisted import AttemptRecord, PersistedStatus
from rightsizer_operator.reconcile.size import pod_gpus_of
from rightsizer_operator.reconcile.sizing_answer import RunningAttempt
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import AMD, vendor_of


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
        fresh = AttemptRecord(
            number=1, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, 1)
        )
        return replace(sized, attempt=fresh)
    unstarted = old.started is None and job is None
    fits = job is not None and job.digest == launch_digest and _fits(job, launch)
    in_place = unstarted or (fits and not _has_time_again(state))
    if in_place:
        attempt = replace(old, gpus=report["gpus"], layout=report["layout"])
        changed = old.gpus != report["gpus"] and not unstarted
        noted = persisted.resized(report, reason=reason, cause=cause, now=now) if changed else persisted
        return replace(sized, attempt=attempt, resizes=noted.resizes)
    number = old.number + 1
    attempt = AttemptRecord(
        number=number, gpus=report["gpus"], layout=report["layout"], job_name=names.job_name(name, number)
    )
    noted = persisted.resized(report, reason=f"{reason}: attempt {number}", cause=cause, now=now)
    observed = {name: value for name, value in persisted.observed.items() if name != "restarts"}
    return replace(sized, attempt=attempt, resizes=noted.resizes, failures=(), observed=observed)


def adopted(state: ReconcileState) -> ReconcileState:
    """With the live Job of an earlier attempt as the current one, unless the status' size needs another Job.

    A status that somebody else wrote must not delete a Job that trains.
    """
    attempt = state.persisted.attempt
    live = [job for job in state.older_jobs if not job.deleting]
    if attempt is None or not live or state.job is not None:
        return state
    job = max(live, key=lambda job: job.attempt)
    earlier = replace(
        attempt, number=job.attempt, job_name=job.name, started=job.started_at or attempt.started
    )
    kept = replace(state, persisted=replace(state.persisted, attempt=earlier))
    if attempt.number == job.attempt + 1 and kept.persisted.report is not None:
        launch = launch_of(kept, attempt=job.attempt)
        if job.digest != digest(launch) or not _fits(job, launch):
            return state
    return kept


def _fits(job: AttemptJob, launch: AttemptLaunch) -> bool:
    """Whether this Job can take the launch's size; only a live elastic Job can take another than its own."""
    return job.parallelism == launch.pods or (job.elastic and not job.finished and not job.deleting)


def _has_time_again(state: ReconcileState) -> bool:
    """Whether the Job failed at a deadline that the plan has raised since."""
    job, limit_s = state.job, active_deadline_s(state)
    if job is None or not job.exceeded_deadline or job.active_deadline_s is None:
        return False
    return limit_s is None or limit_s > job.active_deadline_s


def launch_of(state: ReconcileState, *, attempt: int) -> AttemptLaunch:
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
        rocm=vendor_of(report["gpuType"]) is AMD,
    )
    return AttemptLaunch(
        plan=state.plan,
        owner_uid=state.snapshot.plan["metadata"]["uid"],
        attempt=attempt,
        layout=layout,
        gpus_per_pod=pod_gpus,
        gpu_type=report["gpuType"],
        worker=worker_spec(state.plan, size, DIRECTORIES, movable=_movable(state)),
        reserve_gpus=(report.get("opening") or {}).get("reserveGPUs", 0),
        products=state.snapshot.inventory.products(report["gpuType"]),
        queue=state.snapshot.queue,
        devices=state.snapshot.inventory.devices,
        resource=state.snapshot.inventory.resource(report["gpuType"]),
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
    """Whether pods can be added and removed one by one.

    Kueue places a job with a topology as a whole; the templates of other carriers than a Job are immutable.
    """
    return state.plan.spec.launch.carrier is Carrier.JOB and not (
        state.snapshot.queue and state.snapshot.queue.levels
    )
