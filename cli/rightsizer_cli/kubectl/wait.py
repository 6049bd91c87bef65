"""Wait until a live plan has reached the requested state, and report each change."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rightsizer_api.state import ConditionType, RunningReason, State
from rightsizer_cli.output.exits import NO_PLAN, OK, PLAN_OVER, TIMED_OUT
from rightsizer_engine.values import immutable
from rightsizer_operator.kubectl.plans import condition, state_of

Object = Mapping[str, Any]
Verdict = Callable[[Object], int | None]


@immutable
class Wait:
    """Polling of a plan; tests replace the functions."""

    read_plan: Callable[[], Object]
    report: Callable[[str], None]
    timeout_s: float
    every_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def until(self, done: Verdict) -> int:
        """The exit code of `done`, or TIMED_OUT."""
        end, last = self.clock() + self.timeout_s, ""
        while True:
            plan = self.read_plan()
            line = _state_line(plan)
            if line != last:
                self.report(line)
                last = line
            code = done(plan) if _is_observed(plan) else None
            if code is not None:
                return code
            if self.clock() >= end:
                self.report("timed out; the operator continues the change")
                return TIMED_OUT
            self.sleep(self.every_s)


def resized(gpus: int | None) -> Verdict:
    """Done when the plan trains on all its workers; on `gpus` GPUs, if given."""

    def done(plan: Object) -> int | None:
        if condition(plan, ConditionType.SIZED).get("status") == "False":
            return NO_PLAN
        state, sizing = state_of(plan), plan.get("status", {}).get("sizing", {})
        if gpus is not None and sizing.get("gpus") != gpus:
            return None
        if state == State.SUSPENDED or (state == State.RUNNING and _has_all_workers(plan)):
            return OK
        return _ended(state)

    return done


def suspended(plan: Object) -> int | None:
    """Done when the plan's workers have saved and stopped."""
    state = state_of(plan)
    return OK if state == State.SUSPENDED else _ended(state)


def resumed(plan: Object) -> int | None:
    """Done when the plan trains again or waits in a queue."""
    state = state_of(plan)
    if condition(plan, ConditionType.SIZED).get("status") == "False":
        return NO_PLAN
    there = (State.RUNNING, State.QUEUED, State.WAITING_FOR_GPUS)
    return OK if state in there else _ended(state)


def _ended(state: str) -> int | None:
    """PLAN_OVER if the plan has ended, well or not: it will not do what was asked for."""
    known = State.of(state)
    return PLAN_OVER if known and known.ended else None


def _is_observed(plan: Object) -> bool:
    """Whether the operator has observed the latest spec."""
    observed = plan.get("status", {}).get("observedGeneration", 0)
    return bool(observed >= plan["metadata"].get("generation", 1))


def _has_all_workers(plan: Object) -> bool:
    return bool(condition(plan, ConditionType.RUNNING).get("reason") == RunningReason.ALL_WORKERS)


def _state_line(plan: Object) -> str:
    if not _is_observed(plan):
        return "waiting for the operator"
    sized = condition(plan, ConditionType.SIZED)
    if sized.get("status") == "False":
        return f"{sized.get('reason', '')}: {sized.get('message', '')}"
    message = condition(plan, ConditionType.READY).get("message", "")
    return f"{state_of(plan)}{f': {message}' if message else ''}"
