"""Resizes that a measurement asks for: carried out, recommended, taken back when they fail. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_api.state import ConditionType, State
from rightsizer_engine.resize.rollback import SizeAttempt, rollback_target
from rightsizer_engine.resize.rollback import has_trained as seen_to_train
from rightsizer_engine.resize.types import Action as Advice
from rightsizer_engine.resize.types import Decision
from rightsizer_operator.reconcile.attempts import attempted, running_of
from rightsizer_operator.reconcile.resize_advice import NOT_MEASURED, document, over_provisioned
from rightsizer_operator.reconcile.size import at_size
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.actions import EmitEvent, Requeue
from rightsizer_operator.values.conditions import is_true

_RESIZES = (Advice.GROW, Advice.SHRINK, Advice.RELAYOUT)


def advised(state: ReconcileState) -> ReconcileState:
    """With the newest judgement of its size told, and carried out where the plan allows it."""
    decision, job = state.snapshot.decision, state.job
    if decision is None or job is None or not job.is_active or state.persisted.attempt is None:
        return state
    told, before = document(decision, state.snapshot.now), state.snapshot.status.get("recommendation") or {}
    was_missing = state.condition(ConditionType.OVER_PROVISIONED).get("reason") == NOT_MEASURED
    same = _identity(before) == _identity(told) and was_missing is (decision.missing is not None)
    if not same or not before["reason"].endswith(decision.withheld):
        state = replace(state, recommendation=told)
        if decision.action is not Advice.KEEP:
            warning = decision.action is Advice.FLAG
            state = state.then(
                EmitEvent(reason=told["action"], message=_sentence(decision, told), warning=warning)
            )
    state = state.then(OverProvisioned=over_provisioned(decision))
    if (
        not decision.act
        or decision.action not in _RESIZES
        or is_true(state.snapshot.status, ConditionType.RESIZING)
    ):
        return state
    return _to(state, decision.gpus, decision=decision, reason=decision.reason, cause="Measured")


def proven(state: ReconcileState) -> ReconcileState:
    """With the moment noted at which training was first seen to make steps at its newest size."""
    rows, said = state.persisted.resizes, state.snapshot.progress
    if (
        not rows
        or "trainedAt" in rows[-1]
        or said is None
        or not is_true(state.snapshot.status, ConditionType.RUNNING)
    ):
        return state
    if not seen_to_train(rows[-1]["toGPUs"], world=said.workers or 0, steps=bool(said.tokens_per_s)):
        return state
    row = {**rows[-1], "trainedAt": format_time(state.snapshot.now)}
    return replace(state, persisted=replace(state.persisted, resizes=(*rows[:-1], row)))


def fallen_back(state: ReconcileState) -> ReconcileState:
    """Back at the last good size where a resize by measurement did not succeed.

    A size at which no step was ever seen has not succeeded, however long its workers took to fail: what was
    asked for on a run that trained must not be what ends it.
    """
    rows, job = state.persisted.resizes, state.job
    if not rows or rows[-1].get("cause") != "Measured" or state.plan.spec.suspend:
        return state
    row, limit_s = rows[-1], state.snapshot.settings.resize_s
    at = parse_time(row["at"]) or state.snapshot.now
    left_s = limit_s - (state.snapshot.now - at).total_seconds()
    if job is not None and job.exceeded_deadline:
        return state
    if job is not None and job.finished == State.FAILED and rollback_target(_trials(row)) is not None:
        why = f"{row['toGPUs']} GPUs failed"
    elif not (
        _since(state, ConditionType.RESIZING, "True", at) or _since(state, ConditionType.RUNNING, "False", at)
    ):
        return state
    elif left_s > 0:
        return state.then(Requeue(after_s=left_s))
    else:
        why = f"{row['toGPUs']} GPUs were not all there within {limit_s:g} s"
    reason = f"{why}; back to {row['fromGPUs']}"
    state = state.then(EmitEvent(reason="ResizeFailed", message=reason, warning=True))
    return _to(state, row["fromGPUs"], decision=None, reason=reason, cause="Failure")


def _trials(row: Mapping[str, Any]) -> tuple[SizeAttempt, SizeAttempt]:
    """A resize as two sizes that were tried: by measurement, so the first one trained."""
    before = SizeAttempt(gpus=row["fromGPUs"], layout=row.get("fromLayout", ""), trained=True)
    return before, SizeAttempt(gpus=row["toGPUs"], layout=row.get("toLayout", ""), trained="trainedAt" in row)


def _to(
    state: ReconcileState, gpus: int, *, decision: Decision | None, reason: str, cause: str
) -> ReconcileState:
    """The case at another size; as it was where the engine finds no plan of that size."""
    running, snapshot = running_of(state), state.snapshot
    if running is None:
        return state
    report = at_size(
        state.plan,
        gpus=gpus,
        layout=decision.layout if decision else None,
        running=running,
        inventory=snapshot.inventory,
        created=state.created,
        inter_gbps=snapshot.settings.inter_node_gbps,
        size=state.size,
    )
    if report is None:
        return state
    opening = (state.persisted.report or {}).get("opening")
    report = {**report, "opening": opening} if opening else report  # its reserve limits later growth too
    persisted = attempted(state, report, state.persisted, reason=reason, cause=cause)
    return replace(state, persisted=persisted, resized=True)


def _since(state: ReconcileState, kind: ConditionType, status: str, at: dt.datetime) -> bool:
    """Whether a condition has had this status ever since a resize began (moments are kept to the second)."""
    said = state.condition(kind)
    since = parse_time(said.get("lastTransitionTime"))
    return said.get("status") == status and since is not None and (since - at).total_seconds() <= 1.0


def _identity(recommendation: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes a recommendation a new one; its figures change a little with every decision."""
    return recommendation.get("action"), recommendation.get("gpus")


def _sentence(decision: Decision, told: Mapping[str, Any]) -> str:
    size = f"{decision.gpus} GPUs: " if decision.action in _RESIZES else ""
    return f"{size}{told['reason']}"
