"""The failure budget of an attempt, kept in the plan's status, and the limit of its start-up time. Pure.

A pod counts its workers' failures itself, but its count ends with the pod. What ends pods is counted here: an
OOM kill, an image without the entrypoint, a container that cannot start. A plan that is out of budget fails:
its Job gets a deadline in the past, so that running pods stop and failed ones keep their logs.
"""

import datetime as dt
from dataclasses import replace

from rightsizer_api.state import ConditionType
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_launch.worker.restart_monitor import DEFAULT_START_TIMEOUT_S
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.actions import PatchJob, Requeue
from rightsizer_operator.values.attempt import FailureRecord
from rightsizer_operator.values.conditions import PlanCondition, no, yes
from rightsizer_operator.values.names import END_NOW_S, WORKER
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.snapshot import AttemptJob

_ROUND_S = 60.0
"""Pods that fail within this time are one failure: the first took the others along. A guess."""
_SAME_MOMENT_S = 5.0
_MOST_FAILURES = 50
_MOST_CHARACTERS = 1024


def recorded(state: ReconcileState) -> ReconcileState:
    """The state with the attempt's first training step and the newly failed pods recorded."""
    attempt, progress, now = state.persisted.attempt, state.snapshot.progress, state.snapshot.now
    if attempt is not None and attempt.trained_at is None and progress and progress.tokens_per_s:
        attempt = replace(attempt, trained_at=now)
        state = replace(state, persisted=replace(state.persisted, attempt=attempt))
    for pod in failed_pods(state):
        if _is_new(pod, state):
            failures = (*state.persisted.failures, _failure(pod, state))[-_MOST_FAILURES:]
            state = replace(state, persisted=replace(state.persisted, failures=failures))
    return state


def ended(state: ReconcileState, job: AttemptJob) -> ReconcileState | None:
    """The state with the plan failed and its Job ending; None: it may go on."""
    verdict = _spent(state) or _never_trained(state, job)
    if verdict is None:
        return None
    finished = no("Finished")
    state = state.then(Failed=verdict, Complete=no(ConditionType.FAILED), Running=finished, Resizing=finished)
    if job.ending:
        return state
    return state.then(PatchJob(name=job.job_name, spec={"activeDeadlineSeconds": END_NOW_S}))


def start_check(state: ReconcileState, job: AttemptJob) -> ReconcileState:
    """The state with a reconcile due when the start-up limit passes."""
    left_s = _start_left_s(state, job)
    return state.then(Requeue(after_s=left_s)) if left_s is not None and left_s > 0 else state


def failed_pods(state: ReconcileState) -> list[Pod]:
    """The attempt's pods that ended by a fault of their own, oldest failure first."""
    number = state.persisted.attempt.number if state.persisted.attempt else 0
    pods = (
        pod for pod in state.snapshot.pods if pod.role == WORKER and pod.attempt == number and pod.has_failed
    )
    return sorted(pods, key=lambda pod: pod.ended_at or state.snapshot.now)


def latest_failure(state: ReconcileState) -> str:
    """The last failure and the budget left, in words; empty without one."""
    failures, restarts = state.persisted.failures, state.plan.spec.launch.restarts
    if not failures:
        return ""
    many = f"failure {len(failures)}; {restarts.limit} are allowed within {restarts.within}"
    return f"last failure: {failures[-1].message} ({many})"


def worker_restarts(state: ReconcileState) -> int:
    """Failures of this attempt's workers: those that ended pods, and those within pods, as rank 0 reports."""
    reported = state.snapshot.progress.restarts if state.snapshot.progress else 0
    return max(state.persisted.observed.restarts or 0, reported + len(state.persisted.failures))


def _is_new(pod: Pod, state: ReconcileState) -> bool:
    """Whether a failed pod is not of a failure that is recorded already.

    Pods of one start fail together, or one after another if each is broken by itself: one failure, unless
    the training advanced in between.
    """
    failures = state.persisted.failures
    last, end = failures[-1].at if failures else None, pod.ended_at
    if last is None or end is None:
        return last is None
    restarted = pod.created is not None and pod.created > last
    return restarted or ((end - last).total_seconds() > _ROUND_S and _trained_since(pod, state, end))


def _failure(pod: Pod, state: ReconcileState) -> FailureRecord:
    """A failed pod as the status records it."""
    at = pod.ended_at or state.snapshot.now
    return FailureRecord(
        at=at,
        pod=pod.name,
        message=pod.cause[:_MOST_CHARACTERS],
        step=max(_step(state), _last_step(state)),
        trained=_trained_since(pod, state, at),
        exit_code=pod.exit_code,
    )


def _trained_since(pod: Pod, state: ReconcileState, at: dt.datetime) -> bool:
    """Whether training advanced since the failure before.

    Of a script that reports no steps, pods that ran longer than a start may take count as having trained.
    """
    step = _step(state)
    if step:
        return step > _last_step(state)
    began = max(filter(None, (pod.started_at, pod.created)), default=at)  # 1970 if it could not start
    return (at - began).total_seconds() >= _start_limit_s(state)


def _step(state: ReconcileState) -> int:
    """The furthest step that is known of this attempt."""
    reported = state.snapshot.progress.step if state.snapshot.progress else 0
    return max(reported, state.persisted.observed.step or 0)


def _last_step(state: ReconcileState) -> int:
    failures = state.persisted.failures
    return failures[-1].step if failures else 0


def _spent(state: ReconcileState) -> PlanCondition | None:
    """Failed where the budget is spent and a failed pod is there to prove it."""
    failures, restarts = state.persisted.failures, state.plan.spec.launch.restarts
    if not failures or not failed_pods(state):
        return None
    budget, advances = RestartBudget(limit=restarts.limit, within_s=parse_duration_s(restarts.within)), 0
    for failure in failures:
        advances += failure.trained
        at = failure.at or state.snapshot.now
        budget = budget.failed(now_s=at.timestamp(), step=advances)
    if not budget.spent:
        return None
    return yes("RestartsExceeded", f"{budget.spent}; last failure: {failures[-1].message}")


def _never_trained(state: ReconcileState, job: AttemptJob) -> PlanCondition | None:
    """Failed where the attempt's workers hold GPUs for too long without a first step."""
    left_s = _start_left_s(state, job)
    if left_s is None or left_s > 0:
        return None
    ready = f"{job.ready} of {job.parallelism} workers ready"
    limit = format_duration(_start_limit_s(state))
    blocked = state.persisted.condition(ConditionType.RUNNING).message
    return yes(
        "StartTimeout",
        f"no training step within {limit} of the start (spec.launch.startTimeout): {blocked or ready}",
    )


def _start_left_s(state: ReconcileState, job: AttemptJob) -> float | None:
    """Seconds until the start has taken too long; None where it trains, or nothing is known against it.

    A script that reports nothing may train all the same: it counts only if the plan states a limit, or if its
    workers are not all there.
    """
    attempt, launch = state.persisted.attempt, state.plan.spec.launch
    if attempt is None or attempt.trained_at is not None or job.started_at is None or not job.is_active:
        return None
    complete = job.ready >= job.parallelism and state.snapshot.rendezvous_ready
    absent = not complete and _never_ran(state, job.started_at)
    holds = job.ready > 0 or any(pod.node and pod.attempt == job.attempt for pod in state.snapshot.pods)
    idle = state.snapshot.progress is not None  # it answers, and has made no step
    if not (holds and (absent or idle or launch.start_timeout is not None)):
        return None
    return _start_limit_s(state) - (state.snapshot.now - job.started_at).total_seconds()


def _never_ran(state: ReconcileState, started_at: dt.datetime) -> bool:
    """Whether the workers have not all been ready since the Job started."""
    running = state.persisted.condition(ConditionType.RUNNING)
    return not running.holds and (
        running.since is None or (running.since - started_at).total_seconds() <= _SAME_MOMENT_S
    )


def _start_limit_s(state: ReconcileState) -> float:
    stated = state.plan.spec.launch.start_timeout
    return parse_duration_s(stated) if stated is not None else DEFAULT_START_TIMEOUT_S
