"""The plan's status: conditions and measured progress. Pure."""

import os
from dataclasses import replace
from typing import Any

from rightsizer_api.quantities import format_time
from rightsizer_api.state import ConditionType, RunningReason, State
from rightsizer_launch.worker.restart_monitor import EXIT_GIVEN_UP
from rightsizer_operator.reconcile import deadline
from rightsizer_operator.reconcile.failures import failed_pods, latest_failure, worker_restarts
from rightsizer_operator.reconcile.final_progress import final_progress
from rightsizer_operator.reconcile.idle import suspended_because
from rightsizer_operator.reconcile.pending import obstacle
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import Requeue
from rightsizer_operator.values.conditions import PlanCondition, merge_conditions, no, unknown, yes
from rightsizer_operator.values.kueue import pending_reason
from rightsizer_operator.values.observed import ObservedProgress
from rightsizer_operator.values.pods import START_S, PodPhase
from rightsizer_operator.values.snapshot import AttemptJob

_STARTS = (
    State.STARTING,
    RunningReason.NO_RENDEZVOUS,
    RunningReason.NO_WORKERS,
    RunningReason.WAITING_FOR_WORKERS,
    RunningReason.NOT_ADMITTED,
)
"""Running's reasons without a known obstacle."""
_MISSED_SCRAPES = 3  # scrape intervals without an answer after which metrics count as unavailable


def run_conditions(state: ReconcileState) -> ReconcileState:
    """The state with all conditions that follow from its Job."""
    job = state.job
    if ConditionType.FAILED in state.conditions:
        pass  # decided: its Job is about to end
    elif job is not None and job.finished:
        state = _finished(state, job)
    elif job is not None:
        state = _live(state, job)
    elif not _has_ended(state):
        state = state.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    state = _with_progress(state.then(MetricsAvailable=_measured(state)))
    persisted = state.persisted
    state = state.then(DeadlineAtRisk=deadline.at_risk(state, persisted.deadline, persisted.eta))
    if not persisted.conditions:
        state = state.then(OverProvisioned=unknown("NotMeasured"))
    if ConditionType.RESIZING not in state.conditions:
        state = state.then(Resizing=_resizing(state))
    return state.then(Ready=_ready(state))


def status_document(state: ReconcileState) -> dict[str, Any]:
    """The new status."""
    status = state.persisted.document()
    status["selector"] = f"{names.LABEL_PLAN}={state.plan.metadata.name},{names.LABEL_ROLE}={names.WORKER}"
    samples = _samples(state)
    if samples:
        status["samples"] = samples
    status["conditions"] = merge_conditions(
        state.persisted.conditions, state.conditions, generation=state.generation, now=state.snapshot.now
    )
    return status


def _with_progress(state: ReconcileState) -> ReconcileState:
    """The status with the measured progress, the deadline and the expected end."""
    state = replace(state, persisted=replace(state.persisted, observed=_observed(state)))
    due = deadline.due_at(state)
    eta = deadline.expected_end(state, due)
    return replace(state, persisted=replace(state.persisted, deadline=due, eta=eta))


def _has_ended(state: ReconcileState) -> bool:
    """Whether the current attempt has ended and its Job was deleted."""
    attempt = state.persisted.attempt
    return state.persisted.has_ended and attempt is not None and attempt.started is not None


def _finished(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    finished = no("Finished")
    if job.finished == State.COMPLETE:
        return state.then(
            Complete=yes("Trained", "trained on all tokens"),
            Failed=no("Trained"),
            Running=finished,
            Resizing=finished,
        )
    known, causes = state.persisted.condition(ConditionType.FAILED), _failure_message(state)
    if known.holds:  # decided before its pods could be deleted
        failed = yes(known.reason, known.message)
    elif job.exceeded_deadline:
        limit = state.plan.spec.active_deadline
        message = (
            f"trained longer than spec.activeDeadline, {limit}; its workers had their grace period to save"
        )
        failed = yes(job.reason, message)
    else:
        failed = yes(job.reason or State.FAILED, causes or job.message)
    return state.then(
        Failed=failed,
        Complete=no(ConditionType.FAILED),
        Running=finished,
        Resizing=finished,
    )


def _live(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    state = state.then(Complete=no("NotFinished"), Failed=no("NotFinished"))
    if job.suspended and state.plan.spec.suspend:
        return state.then(
            Admitted=no(State.SUSPENDED, suspended_because(state)),
            Running=no(State.SUSPENDED, "suspended; checkpoint saved"),
        )
    if job.suspended:
        queued = pending_reason(state.snapshot.workloads)
        reason = queued if state.snapshot.queue else f"{job.kind} {job.name} is suspended"
        return state.then(Admitted=no(State.QUEUED, reason), Running=no(RunningReason.NOT_ADMITTED))
    running, known = _running(state, job), state.persisted.condition(ConditionType.RUNNING)
    if running.reason in _STARTS and known.reason == State.STARTING and _has_just_begun(state):
        state = state.then(Requeue(after_s=START_S))
        running = no(State.STARTING, known.message)  # its steps are not worth a write each
    return state.then(Admitted=yes(ConditionType.ADMITTED), Running=running)


def _has_just_begun(state: ReconcileState) -> bool:
    """Whether the attempt has not had the time that a start takes, and nothing is known to be amiss."""
    attempt = state.persisted.attempt
    if attempt is None or attempt.started is None or state.snapshot.pods or state.snapshot.warnings:
        return False
    return (state.snapshot.now - attempt.started).total_seconds() < START_S


def _running(state: ReconcileState, job: AttemptJob) -> PlanCondition:
    """Whether enough workers are ready, and the rendezvous store in which they meet."""
    wanted, pods = job.parallelism, state.snapshot.pods
    message = f"{job.ready} of {wanted} workers ready"
    if job.expected:
        message += f"; {job.kind} {job.name} has no Job yet, which its controller creates"
    workers = [pod for pod in pods if pod.role == names.WORKER and pod.attempt == job.attempt]
    if job.ready < wanted and (
        job.succeeded or any(pod.exit_code == 0 or pod.phase == PodPhase.SUCCEEDED for pod in workers)
    ):
        return yes(State.FINISHING, message)
    if not state.snapshot.rendezvous_ready:
        running = no(RunningReason.NO_RENDEZVOUS, f"{message}; the rendezvous pod is not ready")
    elif job.ready >= wanted:
        return yes(RunningReason.ALL_WORKERS, message)
    elif job.ready:
        running = (
            yes(RunningReason.SOME_WORKERS, message)
            if job.elastic
            else no(RunningReason.WAITING_FOR_WORKERS, message)
        )
    else:
        running = no(RunningReason.NO_WORKERS, message)
    return _explained(state, job, running)


def _explained(state: ReconcileState, job: AttemptJob, running: PlanCondition) -> PlanCondition:
    """Running with what keeps the other pods from running: an obstacle, else the last failure."""
    found = obstacle(state, job)
    message = "; ".join(filter(None, (running.message, found.message if found else latest_failure(state))))
    blocked = found is not None and running.status != "True"
    return replace(running, message=message, reason=found.state if found and blocked else running.reason)


def _resizing(state: ReconcileState) -> PlanCondition:
    job, attempt = state.job, state.persisted.attempt
    if job is None or attempt is None or job.finished or job.suspended:
        return no("NotResizing")
    wanted = attempt.gpus // job.gpus_per_pod if job.gpus_per_pod else job.parallelism
    changes = job.elastic and wanted != job.parallelism
    if changes or (state.persisted.holds(ConditionType.RESIZING) and job.ready != wanted):
        message = f"{job.ready} of {wanted} workers ready"
        workloads = state.snapshot.workloads
        queued = any(w.replaces and not w.admitted for w in workloads if not w.finished)
        return yes("InPlace", f"{message}; {pending_reason(workloads)}" if queued else message)
    return no("NotResizing")


def _ready(state: ReconcileState) -> PlanCondition:
    """Ready's reason is the plan's state: Failed or Complete if it has ended, else what the Job does."""
    for kind, ready in ((ConditionType.FAILED, no), (ConditionType.COMPLETE, yes)):
        new, old = state.conditions.get(kind), state.persisted.condition(kind)
        if new is not None and new.holds:
            return ready(kind, new.message)
        if new is None and old.holds:
            return ready(kind, old.message)
    return _state(state)


def _state(state: ReconcileState) -> PlanCondition:
    conditions = state.conditions
    sized, admitted, running = (
        conditions.get(kind) for kind in (ConditionType.SIZED, ConditionType.ADMITTED, ConditionType.RUNNING)
    )
    if state.persisted.sized is None and sized is not None:
        return no(sized.reason, sized.message)
    if conditions[ConditionType.RESIZING].status == "True":
        return no(State.RESIZING, conditions[ConditionType.RESIZING].message)
    if admitted is not None and admitted.status != "True":
        return no(admitted.reason, admitted.message)
    return _progress(state, running) if running else no(State.STARTING)


def _progress(state: ReconcileState, running: PlanCondition) -> PlanCondition:
    """Ready of a plan whose Job may run."""
    message = running.message
    if running.status == "True":
        return yes(State.FINISHING if running.reason == State.FINISHING else State.RUNNING, message)
    if running.reason not in _STARTS:
        return no(running.reason, message)
    ready = state.persisted.condition(ConditionType.READY)
    if state.persisted.holds(ConditionType.RUNNING) or ready.reason == State.RECOVERING:
        return no(State.RECOVERING, f"{message}; restarted workers resume from the last checkpoint")
    return no(State.STARTING, message)


def _measured(state: ReconcileState) -> PlanCondition:
    """Whether the workers' metrics are available. The last answer stands for a few scrape intervals."""
    missing, refusal = state.snapshot.missing_metrics, state.snapshot.scrape_refusal
    if state.snapshot.progress is not None:
        return no("NoCounters", missing.reason) if missing else yes("WorkersAnswer")
    if refusal:
        return no("TooLarge", refusal)
    last, job = state.persisted.observed.updated_at, state.job
    if last is None:
        return unknown("NotMeasured")
    if job is None or not job.is_active or not job.ready:
        return unknown("NotRunning", "no worker is running")
    if (state.snapshot.now - last).total_seconds() > _MISSED_SCRAPES * state.snapshot.settings.observe_s:
        return no("NoAnswer", f"no worker has answered a metrics scrape since {format_time(last)}")
    available = state.persisted.holds(ConditionType.METRICS_AVAILABLE)
    return (
        yes("WorkersAnswer")
        if available
        else unknown("NoAnswer", "no worker has answered a metrics scrape yet")
    )


def _observed(state: ReconcileState) -> ObservedProgress:
    """Measured progress, renewed at most every `observe_s` to limit status writes."""
    observed, final = state.persisted.observed, final_progress(state)
    progress, restarts = final or state.snapshot.progress, worker_restarts(state)
    observed = replace(observed, restarts=restarts or observed.restarts)
    if progress is None or (not final and _is_recent(state)):
        return observed
    return ObservedProgress(
        step=progress.step,
        tokens=progress.tokens,
        progress=min(1.0, progress.tokens / state.target_tokens),
        tokens_per_s=observed.tokens_per_s if final else progress.tokens_per_s,
        restarts=restarts,
        loss=observed.loss if progress.loss is None else progress.loss,
        saved_at=progress.checkpoint_at or observed.saved_at,
        updated_at=state.snapshot.now,
    )


def _is_recent(state: ReconcileState) -> bool:
    """Whether the measured progress was renewed less than `observe_s` ago."""
    last = state.persisted.observed.updated_at
    return (
        last is not None and (state.snapshot.now - last).total_seconds() < state.snapshot.settings.observe_s
    )


def _samples(state: ReconcileState) -> list[dict[str, Any]]:
    """The samples that a new operator would continue from, written as often as the measured progress."""
    if state.job is None or not state.job.is_active:
        return []
    known = state.snapshot.status.get("samples", ())
    renewed = state.persisted.observed.updated_at == state.snapshot.now
    return [dict(sample) for sample in (state.snapshot.samples if renewed else known)]


def _failure_message(state: ReconcileState) -> str:
    """Why the workers failed: one that spent the restart budget first, then another one's different words."""
    final = (os.EX_USAGE, EXIT_GIVEN_UP)
    pods = sorted(failed_pods(state), key=lambda pod: pod.exit_code not in final)
    causes = {pod.message: pod.cause for pod in reversed(pods)}
    return "; also ".join(list(reversed(causes.values()))[:2])
