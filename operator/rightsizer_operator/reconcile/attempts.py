"""Attempts: whether the running Job can take the persisted size, and the launch of that size. Pure."""

from dataclasses import replace

from rightsizer_api.spec.launch import Carrier
from rightsizer_launch.worker_spec import ElasticRange, LaunchSize, elastic_range, worker_spec
from rightsizer_operator.manifests.pod_spec import DIRECTORIES, AttemptLaunch, digest
from rightsizer_operator.reconcile.lifetime import active_deadline_s
from rightsizer_operator.reconcile.sizing_response import RunningAttempt
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.attempt import AttemptRecord
from rightsizer_operator.values.resize import ResizeCause
from rightsizer_operator.values.sized import SizedPlan
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import AMD, vendor_of


def attempted(
    state: ReconcileState,
    sized: SizedPlan,
    *,
    reason: str = "the plan changed",
    cause: ResizeCause = ResizeCause.PLAN,
) -> ReconcileState:
    """The state with this size, and a new attempt unless the running one can take it in place."""
    before, job, now = state.persisted, state.job, state.snapshot.now
    old = before.attempt or _attempt(state, sized, 1)
    state = with_digest(replace(state, persisted=replace(before, sized=sized, attempt=old), launch=None))
    launch = state.launch
    assert launch is not None, "a sized plan has a launch"
    if before.attempt is None:
        return state
    unstarted = old.started is None and job is None
    fits = job is not None and job.digest == launch.digest and _fits(job, launch)
    if unstarted or (fits and not _has_time_again(state)):
        attempt = replace(old, gpus=sized.gpus, layout=sized.document["layout"])
        changed = old.gpus != sized.gpus and not unstarted
        noted = before.resized(sized, reason=reason, cause=cause, now=now) if changed else before
        return replace(state, persisted=replace(state.persisted, attempt=attempt, resizes=noted.resizes))
    attempt = _attempt(state, sized, old.number + 1)
    noted = before.resized(sized, reason=f"{reason}: attempt {attempt.number}", cause=cause, now=now)
    observed = replace(before.observed, restarts=None)
    persisted = replace(
        state.persisted, attempt=attempt, resizes=noted.resizes, failures=(), observed=observed
    )
    return replace(state, persisted=persisted, launch=None)


def _attempt(state: ReconcileState, sized: SizedPlan, number: int) -> AttemptRecord:
    """A new attempt of this size."""
    name = names.job_name(state.plan.metadata.name, number)
    return AttemptRecord(number=number, gpus=sized.gpus, layout=sized.document["layout"], job_name=name)


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
    if attempt.number == job.attempt + 1 and kept.persisted.sized is not None:
        kept = with_digest(kept)
        if kept.launch is None or job.digest != kept.launch.digest or not _fits(job, kept.launch):
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


def with_launch(state: ReconcileState) -> ReconcileState:
    """With the launch of the size and the attempt, built once; as it is before the plan is sized.

    InputError and UnsupportedError: the plan cannot be launched.
    """
    persisted = state.persisted
    if persisted.sized is None or persisted.attempt is None or state.launch is not None:
        return state
    return replace(state, launch=_launch(state, persisted.sized, persisted.attempt.number))


def with_digest(state: ReconcileState) -> ReconcileState:
    """With the launch and its digest, which only a comparison with a Job and a new Job need."""
    launch = with_launch(state).launch
    if launch is None or launch.digest:
        return replace(state, launch=launch)
    return replace(state, launch=replace(launch, digest=digest(launch)))


def _launch(state: ReconcileState, sized: SizedPlan, attempt: int) -> AttemptLaunch:
    job, inventory, layout = state.job, state.snapshot.inventory, sized.layout
    pod_gpus = job.gpus_per_pod if job is not None and job.elastic and _elastic(state, sized).in_place else 0
    size = LaunchSize(
        layout=layout,
        batch_sequences=sized.batch_sequences,
        step_s=sized.step_s,
        checkpoint_interval_s=sized.checkpoint_interval_s,
        rocm=vendor_of(sized.gpu_type) is AMD,
    )
    return AttemptLaunch(
        plan=state.plan,
        owner_uid=state.snapshot.plan["metadata"]["uid"],
        attempt=attempt,
        layout=layout,
        gpus_per_pod=sized.pod_gpus if not pod_gpus or layout.gpus % pod_gpus else pod_gpus,
        gpu_type=sized.gpu_type,
        worker=worker_spec(state.plan, size, DIRECTORIES, movable=_movable(state), resolved=state.resolved),
        reserve_gpus=sized.reserve_gpus,
        products=inventory.products(sized.gpu_type),
        queue=state.snapshot.queue,
        devices=inventory.devices,
        resource=inventory.resource(sized.gpu_type),
        settings=state.snapshot.settings,
    )


def running_of(state: ReconcileState) -> RunningAttempt | None:
    """The running attempt's constraints on a new size; None before the first attempt starts."""
    persisted, job = state.persisted, state.job
    sized, attempt = persisted.sized, persisted.attempt
    if sized is None or attempt is None or attempt.started is None:
        return None
    elastic = _elastic(state, sized).in_place and job is not None and job.is_active
    return RunningAttempt(
        layout=sized.layout,
        batch=sized.batch_sequences,
        elastic=elastic,
        gpu_type=sized.gpu_type,
        tokens=float(persisted.observed.tokens or 0.0),
        pod_gpus=job.gpus_per_pod if job is not None and elastic else 0,
    )


def _elastic(state: ReconcileState, sized: SizedPlan) -> ElasticRange:
    return elastic_range(state.plan, sized.layout, movable=_movable(state))


def _movable(state: ReconcileState) -> bool:
    """Whether pods can be added and removed one by one.

    Kueue places a job with a topology as a whole; the templates of other carriers than a Job are immutable.
    """
    return state.plan.spec.launch.carrier is Carrier.JOB and not (
        state.snapshot.queue and state.snapshot.queue.levels
    )
