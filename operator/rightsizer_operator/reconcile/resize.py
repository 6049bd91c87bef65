"""Resizes by measurement: recommended, carried out, and rolled back if they fail. Pure."""

import datetime as dt
from dataclasses import replace

from rightsizer_api.state import ConditionType, State
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.resize.rollback import SizeAttempt, rollback_target
from rightsizer_engine.resize.rollback import has_trained as seen_to_train
from rightsizer_engine.resize.types import Action as Advice
from rightsizer_engine.resize.types import Decision
from rightsizer_operator.reconcile.attempts import attempted, running_of
from rightsizer_operator.reconcile.resize_advice import NOT_MEASURED, over_provisioned
from rightsizer_operator.reconcile.size import at_size
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values.actions import EmitEvent, Requeue
from rightsizer_operator.values.conditions import PlanCondition
from rightsizer_operator.values.resize import RecommendationRecord, ResizeCause, ResizeRecord

_RESIZES = (Advice.GROW, Advice.SHRINK, Advice.RELAYOUT)


def advised(state: ReconcileState) -> ReconcileState:
    """The newest decision, recommended, and carried out where the plan allows it."""
    decision, job = state.snapshot.decision, state.job
    if decision is None or job is None or not job.is_active or state.persisted.attempt is None:
        return state
    if not _is_known(state, decision):
        state = _recommended(state, decision)
    state = state.then(OverProvisioned=over_provisioned(decision))
    resizing = state.persisted.holds(ConditionType.RESIZING)
    if not decision.act or decision.action not in _RESIZES or resizing:
        return state
    return _at_size(
        state, decision.gpus, layout=decision.layout, reason=decision.reason, cause=ResizeCause.MEASURED
    )


def proven(state: ReconcileState) -> ReconcileState:
    """Record the first training step that is seen at the newest size."""
    resizes, progress = state.persisted.resizes, state.snapshot.progress
    if not resizes or progress is None or not state.persisted.holds(ConditionType.RUNNING):
        return state
    newest = resizes[-1]
    steps = bool(progress.tokens_per_s)
    if newest.trained_at or not seen_to_train(newest.to_gpus, world=progress.workers or 0, steps=steps):
        return state
    proved = replace(newest, trained_at=state.snapshot.now)
    return replace(state, persisted=replace(state.persisted, resizes=(*resizes[:-1], proved)))


def fallen_back(state: ReconcileState) -> ReconcileState:
    """Return to the earlier size if a resize by measurement fails.

    A resize has failed if no step was seen at the new size, however long its workers took to fail: a resize
    must not end a run that trained before it.
    """
    resizes = state.persisted.resizes
    if not resizes or resizes[-1].cause != ResizeCause.MEASURED or state.plan.spec.suspend:
        return state
    resize, job, limit_s = resizes[-1], state.job, state.snapshot.settings.resize_s
    at = resize.at or state.snapshot.now
    left_s = limit_s - (state.snapshot.now - at).total_seconds()
    if job is not None and job.exceeded_deadline:
        return state
    if job is not None and job.finished == State.FAILED and rollback_target(_trials(resize)) is not None:
        why = f"{resize.to_gpus} GPUs failed"
    elif not (_resizing_since(state, at) or _stopped_since(state, at)):
        return state
    elif left_s > 0:
        return state.then(Requeue(after_s=left_s))
    else:
        why = f"{resize.to_gpus} GPUs were not all there within {limit_s:g} s"
    reason = f"{why}; back to {resize.from_gpus}"
    state = state.then(EmitEvent(reason="ResizeFailed", message=reason, warning=True))
    return _at_size(state, resize.from_gpus, layout=None, reason=reason, cause=ResizeCause.FAILURE)


def _trials(resize: ResizeRecord) -> tuple[SizeAttempt, SizeAttempt]:
    """The sizes before and after a resize by measurement: the plan trained at the first one."""
    before = SizeAttempt(gpus=resize.from_gpus, layout=resize.from_layout or "", trained=True)
    trained = resize.trained_at is not None
    return before, SizeAttempt(gpus=resize.to_gpus, layout=resize.to_layout or "", trained=trained)


def _at_size(
    state: ReconcileState, gpus: int, *, layout: Layout | None, reason: str, cause: ResizeCause
) -> ReconcileState:
    """The plan at another size; unchanged if the engine finds no plan of that size."""
    running, snapshot = running_of(state), state.snapshot
    if running is None:
        return state
    sized = at_size(
        state.resolved,
        gpus=gpus,
        layout=layout,
        running=running,
        inventory=snapshot.inventory,
        created=state.created,
        inter_gbps=snapshot.settings.inter_node_gbps,
        size=state.size,
    )
    if sized is None:
        return state
    sized = sized.opened_as(state.persisted.sized)
    return replace(attempted(state, sized, reason=reason, cause=cause), resized=True)


def _resizing_since(state: ReconcileState, at: dt.datetime) -> bool:
    """Whether the plan has been resizing ever since a moment."""
    resizing = state.persisted.condition(ConditionType.RESIZING)
    return resizing.holds and _is_since(resizing, at)


def _stopped_since(state: ReconcileState, at: dt.datetime) -> bool:
    """Whether the plan has not run ever since a moment."""
    running = state.persisted.condition(ConditionType.RUNNING)
    return running.status == "False" and _is_since(running, at)


def _is_since(condition: PlanCondition, at: dt.datetime) -> bool:
    """Whether a condition last changed at a moment or before; moments are kept to the second."""
    return condition.since is not None and (condition.since - at).total_seconds() <= 1.0


def _is_known(state: ReconcileState, decision: Decision) -> bool:
    """Whether the status recommends the same; figures change a little with every decision."""
    known = state.persisted.recommendation
    if known is None:
        return False
    new = RecommendationRecord.from_decision(decision, state.snapshot.now)
    was_missing = state.persisted.condition(ConditionType.OVER_PROVISIONED).reason == NOT_MEASURED
    same = (known.action, known.gpus) == (new.action, new.gpus)
    same = same and was_missing is (decision.missing is not None)
    return same and known.reason.endswith(decision.withheld)


def _recommended(state: ReconcileState, decision: Decision) -> ReconcileState:
    """The decision as the status' recommendation, with an Event unless it keeps the size."""
    found = RecommendationRecord.from_decision(decision, state.snapshot.now)
    state = replace(state, persisted=replace(state.persisted, recommendation=found))
    if decision.action is Advice.KEEP:
        return state
    size = f"{decision.gpus} GPUs: " if decision.action in _RESIZES else ""
    warning = decision.action is Advice.FLAG
    return state.then(EmitEvent(reason=found.action, message=f"{size}{found.reason}", warning=warning))
