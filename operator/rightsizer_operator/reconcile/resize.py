"""Resizes that a measurement asks for: carried out, recommended, taken back when they fail. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer.resize.rollback import SizeAttempt, rollback_target
from rightsizer.resize.rollback import has_trained as seen_to_train
from rightsizer.resize.types import Action as Advice
from rightsizer.resize.types import Decision
from rightsizer_operator.reconcile.attempts import attempted, running_of
from rightsizer_operator.reconcile.resize_advice import document, over_provisioned
from rightsizer_operator.reconcile.size import at_size
from rightsizer_operator.reconcile.state import Case
from rightsizer_operator.values.actions import Emit, Requeue
from rightsizer_operator.values.conditions import holds
from rightsizer_operator.values.snapshot import moment, stamp

__all__ = ["advised", "fallen_back", "proven"]

_RESIZES = (Advice.GROW, Advice.SHRINK, Advice.RELAYOUT)


def advised(case: Case) -> Case:
    """With the newest judgement of its size told, and carried out where the plan allows it."""
    decision, job = case.world.decision, case.job
    if decision is None or job is None or not job.lives or case.journal.attempt is None:
        return case
    told, before = document(decision, case.world.now), case.world.status.get("recommendation") or {}
    if _says(before) != _says(told) or not before["reason"].endswith(decision.withheld):
        case = replace(case, recommendation=told)
        if decision.action is not Advice.KEEP:
            warning = decision.action is Advice.FLAG
            case = case.then(Emit(reason=told["action"], message=_sentence(decision, told), warning=warning))
    case = case.then(OverProvisioned=over_provisioned(decision))
    if not decision.act or decision.action not in _RESIZES or holds(case.world.status, "Resizing"):
        return case
    return _to(case, decision.gpus, decision=decision, reason=decision.reason, cause="Measured")


def proven(case: Case) -> Case:
    """With the moment noted at which training was first seen to make steps at its newest size."""
    rows, said = case.journal.resizes, case.world.progress
    if not rows or "trainedAt" in rows[-1] or said is None or not holds(case.world.status, "Running"):
        return case
    if not seen_to_train(rows[-1]["toGPUs"], world=said.workers or 0, steps=bool(said.tokens_per_s)):
        return case
    row = {**rows[-1], "trainedAt": stamp(case.world.now)}
    return replace(case, journal=replace(case.journal, resizes=(*rows[:-1], row)))


def fallen_back(case: Case) -> Case:
    """Back at the last good size where a resize by measurement did not succeed.

    A size at which no step was ever seen has not succeeded, however long its workers took to fail: what was
    asked for on a run that trained must not be what ends it.
    """
    rows, job = case.journal.resizes, case.job
    if not rows or rows[-1].get("cause") != "Measured" or case.plan.spec.suspend:
        return case
    row, limit_s = rows[-1], case.world.settings.resize_s
    at = moment(row["at"]) or case.world.now
    left_s = limit_s - (case.world.now - at).total_seconds()
    if job is not None and job.finished == "Failed" and rollback_target(_trials(row)) is not None:
        why = f"{row['toGPUs']} GPUs failed"
    elif not (_since(case, "Resizing", "True", at) or _since(case, "Running", "False", at)):
        return case
    elif left_s > 0:
        return case.then(Requeue(after_s=left_s))
    else:
        why = f"{row['toGPUs']} GPUs were not all there within {limit_s:g} s"
    reason = f"{why}; back to {row['fromGPUs']}"
    case = case.then(Emit(reason="ResizeFailed", message=reason, warning=True))
    return _to(case, row["fromGPUs"], decision=None, reason=reason, cause="Failure")


def _trials(row: Mapping[str, Any]) -> tuple[SizeAttempt, SizeAttempt]:
    """A resize as two sizes that were tried: by measurement, so the first one trained."""
    before = SizeAttempt(gpus=row["fromGPUs"], layout=row.get("fromLayout", ""), trained=True)
    return before, SizeAttempt(gpus=row["toGPUs"], layout=row.get("toLayout", ""), trained="trainedAt" in row)


def _to(case: Case, gpus: int, *, decision: Decision | None, reason: str, cause: str) -> Case:
    """The case at another size; as it was where the engine finds no plan of that size."""
    running, world = running_of(case), case.world
    if running is None:
        return case
    report = at_size(
        case.plan,
        gpus=gpus,
        layout=decision.layout if decision else None,
        running=running,
        inventory=world.inventory,
        created=case.created,
        inter_gbps=world.settings.inter_node_gbps,
    )
    if report is None:
        return case
    journal = attempted(case, report, case.journal, reason=reason, cause=cause)
    return replace(case, journal=journal, resized=True)


def _since(case: Case, kind: str, status: str, at: dt.datetime) -> bool:
    """Whether a condition has had this status ever since a resize began (moments are kept to the second)."""
    said = case.said(kind)
    since = moment(said.get("lastTransitionTime"))
    return said.get("status") == status and since is not None and (since - at).total_seconds() <= 1.0


def _says(recommendation: Mapping[str, Any]) -> tuple[Any, ...]:
    """What makes a recommendation another one; its figures change a little with every look."""
    known = not recommendation.get("reason", "").startswith("unknown")
    return recommendation.get("action"), recommendation.get("gpus"), known


def _sentence(decision: Decision, told: Mapping[str, Any]) -> str:
    size = f"{decision.gpus} GPUs: " if decision.action in _RESIZES else ""
    return f"{size}{told['reason']}"
