"""When a plan will be done, and whether that is in time. Pure.

A plan that does not train (it waits for GPUs, its workers cannot run or are lost) ends as much later as it
waits: its expected end moves with the clock, in steps that cost few writes of the status.
"""

import datetime as dt
import math

from rightsizer_api.quantities import later
from rightsizer_api.state import ConditionType
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.conditions import PlanCondition, no, unknown, yes
from rightsizer_operator.values.sized import SizedPlan

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_STEPS, _LONGEST_STEP_S = 50, 3600
"""An expected end that moves is rounded up by at most a fiftieth of what is left, and by an hour."""


def due_at(state: ReconcileState) -> dt.datetime | None:
    """The plan's deadline."""
    deadline = state.plan.spec.deadline
    if deadline is None:
        return None
    if deadline.finish_by is not None:
        return deadline.finish_by
    return later(state.created, parse_duration_s(str(deadline.finish_within)))


def at_risk(state: ReconcileState, due: dt.datetime | None, eta: dt.datetime | None) -> PlanCondition:
    """Whether the plan ends after its deadline; one without an expected end is late once it is past."""
    now = state.snapshot.now
    if due is None:
        return no("NoDeadline")
    if state.holds(ConditionType.COMPLETE):
        late = eta is not None and eta > due
        return yes("Late", "finished after the deadline") if late else no("Finished")
    if eta is None:
        return yes("Late", "the deadline has passed") if now > due else unknown("NoEstimate")
    if eta <= due:
        return no("OnTime")
    late_s = (eta - due).total_seconds()
    return yes("Late", f"expected to finish {format_duration(late_s)} after the deadline")


def expected_end(state: ReconcileState, due: dt.datetime | None) -> dt.datetime | None:
    """When a complete plan ended; else a moment that is not past. None: failed, suspended or not sized."""
    if state.holds(ConditionType.COMPLETE):
        return state.job.finished_at if state.job else state.persisted.eta
    sized = state.persisted.sized
    if sized is None or state.plan.spec.suspend or state.holds(ConditionType.FAILED):
        return None
    now, trains = state.snapshot.now, state.holds(ConditionType.RUNNING)
    since, left_s = _left(state, sized, trains=trains)
    end = later(since, left_s)
    if trains and end >= now:
        return end
    return _in_steps(state, due, max(now, end) if trains else later(now, left_s))


def _left(state: ReconcileState, sized: SizedPlan, *, trains: bool) -> tuple[dt.datetime, float]:
    """The seconds of training left at a moment: by the measured rate, before it by the predicted duration."""
    observed, attempt, now = state.persisted.observed, state.persisted.attempt, state.snapshot.now
    if observed.tokens_per_s and observed.updated_at:
        left_tokens = state.target_tokens - (observed.tokens or 0.0)
        return observed.updated_at, max(0.0, left_tokens) / observed.tokens_per_s
    known = state.persisted.condition(ConditionType.RUNNING)
    since = (known.since if state.holds(ConditionType.RUNNING) == known.holds else None) or now
    if attempt is None or attempt.started is None:
        return now, sized.finish_s
    if trains:  # workers that were never restarted have trained since they were ready
        return attempt.started if observed.restarts else max(attempt.started, since), sized.finish_s
    trained_s = max(0.0, (since - attempt.started).total_seconds())  # until its workers were lost
    return now, max(0.0, sized.finish_s - trained_s)


def _in_steps(state: ReconcileState, due: dt.datetime | None, end: dt.datetime) -> dt.datetime:
    """An end that moves, rounded up past the next look, but not beyond a deadline that it still meets."""
    left_s, settings = (end - state.snapshot.now).total_seconds(), state.snapshot.settings
    step_s = math.ceil(min(max(settings.observe_s, left_s / _STEPS), _LONGEST_STEP_S))
    rounded = later(_EPOCH, math.ceil((end.timestamp() + settings.retry_s) / step_s) * step_s)
    return min(rounded, due) if due is not None and end <= due else rounded
