"""The longest run and the retention of a plan: activeDeadline and ttlAfterFinished. Pure.

The Job controller enforces the deadline, also while no operator runs. It counts from the Job's start, but a
plan counts over all its attempts: a later attempt's Job gets what is left.
"""

import datetime as dt
import math
from dataclasses import replace

from rightsizer_api.plan import KIND
from rightsizer_api.state import ConditionType
from rightsizer_engine.units import parse_duration_s
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.actions import Delete, EmitEvent, Requeue
from rightsizer_operator.values.metadata import version_of
from rightsizer_operator.values.names import END_NOW_S


def clocked(state: ReconcileState) -> ReconcileState:
    """The state with the start of training, from which activeDeadline counts.

    A new attempt or a preemption keeps it. Like a Job's, it starts anew after a suspension and after an end.
    """
    started, job = state.persisted.started, state.job
    if state.plan.spec.suspend or state.persisted.has_ended:
        started = None
    elif started is None and job is not None:
        started = job.started_at
    return replace(state, persisted=replace(state.persisted, started=started))


def active_deadline_s(state: ReconcileState) -> int | None:
    """The activeDeadlineSeconds of the attempt's Job: what earlier attempts have left, at least a moment."""
    if state.plan.spec.active_deadline is None:
        return None
    limit_s = parse_duration_s(state.plan.spec.active_deadline)
    job_started = (state.job.started_at if state.job else None) or state.snapshot.now
    before = job_started - (state.persisted.started or job_started)
    return max(END_NOW_S + 1, math.ceil(limit_s - before.total_seconds()))


def expired(state: ReconcileState) -> ReconcileState:
    """Delete the finished plan, and with it all that it owns, once its ttlAfterFinished is over."""
    finished = _finished_at(state)
    if state.plan.spec.ttl_after_finished is None or finished is None:
        return state
    ttl_s = parse_duration_s(state.plan.spec.ttl_after_finished)
    left_s = ttl_s - (state.snapshot.now - finished).total_seconds()
    if left_s > 0:
        return state.then(Requeue(after_s=left_s))
    name, uid = state.plan.metadata.name, state.snapshot.plan["metadata"]["uid"]
    delete = Delete(kind=KIND, name=name, uid=uid, version=str(version_of(state.snapshot.plan) or ""))
    message = f"finished {state.plan.spec.ttl_after_finished} ago (spec.ttlAfterFinished)"
    return state.then(delete, EmitEvent(reason="Expired", message=message))


def _finished_at(state: ReconcileState) -> dt.datetime | None:
    """The plan's end, by its status."""
    ended = map(state.persisted.condition, (ConditionType.COMPLETE, ConditionType.FAILED))
    return next((condition.since for condition in ended if condition.holds), None)
