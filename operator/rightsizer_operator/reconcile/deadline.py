"""When a plan will be done, and whether that is in time. Pure.

A plan that does not train (it waits for GPUs, its workers cannot run or are lost) ends as much later as it
waits: its expected end moves with the clock, in steps that cost few writes of the status.
"""

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any

from rightsizer_api import sizing
from rightsizer_api.quantities import later, parse_time
from rightsizer_api.state import ConditionType
from rightsizer_engine.units import format_duration, parse_duration_s
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.conditions import PlanCondition, is_true, no, unknown, yes

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


def at_risk(state: ReconcileState, observed: Mapping[str, Any]) -> PlanCondition:
    """Whether the plan ends after its deadline; one without an expected end is late once it is past."""
    due, eta, now = due_at(state), expected_end(state, observed), state.snapshot.now
    if due is None:
        return no("NoDeadline")
    if _holds(state, ConditionType.COMPLETE):
        late = eta is not None and eta > due
        return yes("Late", "finished after the deadline") if late else no("Finished")
    if eta is None:
        return yes("Late", "the deadline has passed") if now > due else unknown("NoEstimate")
    if eta <= due:
        return no("OnTime")
    late_s = (eta - due).total_seconds()
    return yes("Late", f"expected to finish {format_duration(late_s)} after the deadline")


def expected_end(state: ReconcileState, observed: Mapping[str, Any]) -> dt.datetime | None:
    """When a complete plan ended; else a moment that is not past. None: failed, suspended or not sized."""
    if _holds(state, ConditionType.COMPLETE):
        return state.job.finished_at if state.job else parse_time(state.snapshot.status.get("eta"))
    if state.persisted.report is None or state.plan.spec.suspend or _holds(state, ConditionType.FAILED):
        return None
    now, trains = state.snapshot.now, _holds(state, ConditionType.RUNNING)
    since, left_s = _left(state, state.persisted.report, observed, trains=trains)
    end = later(since, left_s)
    if trains and end >= now:
        return end
    return _in_steps(state, max(now, end) if trains else later(now, left_s))


def target_tokens(state: ReconcileState) -> float:
    """The tokens on which the plan trains."""
    return sizing.resolve(state.plan).workload.tokens


def _holds(state: ReconcileState, kind: ConditionType) -> bool:
    """Whether a condition is True, as far as this reconcile has decided it, else as the status has it."""
    decided = state.conditions.get(kind)
    return decided.status == "True" if decided else is_true(state.snapshot.status, kind)


def _left(
    state: ReconcileState, report: Mapping[str, Any], observed: Mapping[str, Any], *, trains: bool
) -> tuple[dt.datetime, float]:
    """The seconds of training left at a moment: by the measured rate, before it by the predicted duration."""
    rate, at = observed.get("tokensPerSecond"), parse_time(observed.get("updatedAt"))
    if rate and at:
        return at, max(0.0, target_tokens(state) - observed.get("tokens", 0.0)) / rate
    started, now = state.persisted.attempt.started if state.persisted.attempt else None, state.snapshot.now
    changed = _holds(state, ConditionType.RUNNING) != is_true(state.snapshot.status, ConditionType.RUNNING)
    since = (
        now
        if changed
        else parse_time(state.condition(ConditionType.RUNNING).get("lastTransitionTime")) or now
    )
    if started is None:
        return now, report["finishSeconds"]
    if trains:  # workers that were never restarted have trained since they were ready
        return started if observed.get("restarts") else max(started, since), report["finishSeconds"]
    trained_s = max(0.0, (since - started).total_seconds())  # until its workers were lost
    return now, max(0.0, report["finishSeconds"] - trained_s)


def _in_steps(state: ReconcileState, end: dt.datetime) -> dt.datetime:
    """An end that moves, rounded up past the next look, but not beyond a deadline that it still meets."""
    left_s, due, settings = (end - state.snapshot.now).total_seconds(), due_at(state), state.snapshot.settings
    step_s = math.ceil(min(max(settings.observe_s, left_s / _STEPS), _LONGEST_STEP_S))
    rounded = later(_EPOCH, math.ceil((end.timestamp() + settings.retry_s) / step_s) * step_s)
    return min(rounded, due) if due is not None and end <= due else rounded
