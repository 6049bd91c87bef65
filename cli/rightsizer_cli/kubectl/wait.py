"""Waiting until a live plan has become what was asked, with a line for each change on the way."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from rightsizer.values import immutable
from rightsizer_cli.exits import NO_PLAN, OK
from rightsizer_cli.kubectl.describe import condition, state_of
from rightsizer_cli.kubectl.exits import FAILED, TIMED_OUT

__all__ = ["Wait", "resized", "resumed", "suspended"]

Object = Mapping[str, Any]
Verdict = Callable[[Object], int | None]

_OVER = {"Failed": FAILED, "Complete": FAILED}


@immutable
class Wait:
    """How to look, to tell, to sleep and to know the time; functions, so that a test can be quick."""

    look: Callable[[], Object]
    tell: Callable[[str], None]
    within_s: float
    every_s: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def until(self, done: Verdict) -> int:
        """The exit code once `done` gives one; TIMED_OUT where it takes too long."""
        end, last = self.clock() + self.within_s, ""
        while True:
            plan = self.look()
            words = _words(plan)
            if words != last:
                self.tell(words)
                last = words
            code = done(plan) if _seen(plan) else None
            if code is not None:
                return code
            if self.clock() >= end:
                self.tell("it takes longer; the operator goes on with it")
                return TIMED_OUT
            self.sleep(self.every_s)


def resized(gpus: int | None) -> Verdict:
    """Done when it runs at the size: at `gpus` of them, where a number was asked for."""

    def done(plan: Object) -> int | None:
        if condition(plan, "Sized").get("status") == "False":
            return NO_PLAN
        state, sizing = state_of(plan), plan.get("status", {}).get("sizing", {})
        if gpus is not None and sizing.get("gpus") != gpus:
            return None
        if state in {"Suspended"}:
            return OK
        return OK if state == "Running" and _all_there(plan) else _OVER.get(state)

    return done


def suspended(plan: Object) -> int | None:
    """Done when its workers have saved and stopped."""
    state = state_of(plan)
    return OK if state == "Suspended" else _OVER.get(state)


def resumed(plan: Object) -> int | None:
    """Done when it trains again, or waits in a queue for that."""
    state = state_of(plan)
    if condition(plan, "Sized").get("status") == "False":
        return NO_PLAN
    return OK if state in {"Running", "Queued", "WaitingForGPUs"} else _OVER.get(state)


def _seen(plan: Object) -> bool:
    """Whether the operator has looked at the newest spec."""
    observed = plan.get("status", {}).get("observedGeneration", 0)
    return bool(observed >= plan["metadata"].get("generation", 1))


def _all_there(plan: Object) -> bool:
    return bool(condition(plan, "Running").get("reason") == "AllWorkers")


def _words(plan: Object) -> str:
    if not _seen(plan):
        return "asked"
    sized = condition(plan, "Sized")
    if sized.get("status") == "False":
        return f"{sized.get('reason', '')}: {sized.get('message', '')}"
    message = condition(plan, "Ready").get("message", "")
    return f"{state_of(plan)}{f': {message}' if message else ''}"
