"""The engine's resize policy applied to one running plan. Pure."""

import datetime as dt
from dataclasses import replace
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import (
    Action,
    Bottleneck,
    Decision,
    History,
    Limits,
    Running,
    Scaling,
    Visit,
)
from rightsizer_engine.units import parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_launch.running.limits import Tuning, gpu_bounds, limits_of, running_of, seconds_left
from rightsizer_launch.running.size_history import SizeChange, history_of
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.values.conditions import PlanCondition, no, unknown, yes
from rightsizer_operator.values.resize import ResizeCause
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.sized import SizedPlan

NOT_MEASURED = "NotMeasured"
"""The condition's reason if data for a decision are missing."""


@immutable
class ResizeContext:
    """A decision's input besides the plan: GPUs free for it, demand, and what its marks say.

    `visited` are the rates measured at earlier sizes.
    """

    free_gpus: int | None
    others_waiting: bool | None
    trained_s: float | None
    restart_s: float
    visited: tuple[Visit, ...] = ()


def policy_inputs(
    resolved: ResolvedPlan,
    status: PersistedStatus,
    *,
    reading: Reading,
    context: ResizeContext,
    scaling: Scaling,
    settings: OperatorSettings,
    now: dt.datetime,
) -> tuple[Reading, Running, Limits, History]:
    """The inputs of the policy for a running plan."""
    running = running_job(resolved, status, reading=reading, context=context, scaling=scaling, now=now)
    limits = limits_of_plan(resolved.plan, status, context=context, settings=settings)
    return reading, running, limits, replace(history_of_status(status), visited=context.visited)


def advise(resolved: ResolvedPlan, status: PersistedStatus, *, now: dt.datetime, **inputs: Any) -> Decision:
    """Decide about the size of a running plan; `inputs` as for `policy_inputs`."""
    return decide(*policy_inputs(resolved, status, now=now, **inputs), now_s=now.timestamp())


def running_job(
    resolved: ResolvedPlan,
    status: PersistedStatus,
    *,
    reading: Reading,
    context: ResizeContext,
    scaling: Scaling,
    now: dt.datetime,
) -> Running:
    """The plan as it runs."""
    sized, due = size_of(status), status.deadline
    return running_of(
        resolved.plan,
        reading,
        gpus=sized.gpus,
        layout=sized.layout,
        scaling=scaling,
        target_tokens=resolved.workload.tokens,
        deadline_left_s=seconds_left(due.timestamp() if due else None, now_s=now.timestamp()),
        trained_s=context.trained_s,
    )


def size_of(status: PersistedStatus) -> SizedPlan:
    """The size of a plan that runs."""
    if status.sized is None:
        raise LookupError("the plan is not sized")
    return status.sized


def unmeasured(status: PersistedStatus, missing: Missing) -> Decision:
    """No resize, since measurements are missing."""
    sized = size_of(status)
    return Decision(
        action=Action.KEEP,
        gpus=sized.gpus,
        layout=sized.layout,
        reason=str(missing),
        missing=missing,
        bottleneck=Bottleneck.UNKNOWN,
    )


def limits_of_plan(
    plan: TrainingPlan, status: PersistedStatus, *, context: ResizeContext, settings: OperatorSettings
) -> Limits:
    """The limits that the plan, the administrator and the cluster set. A staged plan grows to its reserve."""
    sized, (least, most) = size_of(status), gpu_bounds(plan)
    if sized.is_staged:
        most = min(most or sized.reserve_gpus, sized.reserve_gpus)
    return limits_of(
        plan,
        tuning_of(settings, plan.metadata.namespace or ""),
        gpus=(least, most),
        takes_spare=most is not None,
        look_s=(settings.look_s or sized.look_after_s) if sized.is_staged else None,
        checkpoint_interval_s=_checkpoint_interval_s(plan, sized),
        restart_s=context.restart_s,
        saves_first=True,
        free_gpus=context.free_gpus,
        others_waiting=context.others_waiting,
    )


def tuning_of(settings: OperatorSettings, namespace: str) -> Tuning:
    """The administrator's settings for plans of a namespace."""
    return Tuning(
        cap=settings.cap(namespace),
        cool_down_s=settings.cool_down_s,
        restart_s=settings.restart_s,
        warm_up_s=settings.warm_up_s,
        least_window_s=settings.window_s,
        pressure=settings.give_back,
    )


def _checkpoint_interval_s(plan: TrainingPlan, sized: SizedPlan) -> float | None:
    checkpoint = plan.spec.launch.checkpoint
    if checkpoint is None:
        return None
    if checkpoint.interval == "auto":
        return float(sized.checkpoint_interval_s)
    return parse_duration_s(checkpoint.interval)


def history_of_status(status: PersistedStatus) -> History:
    """Earlier resizes of a plan, from its status."""
    return history_of(
        SizeChange(
            at_s=resize.at.timestamp(),
            failed_gpus=resize.from_gpus if resize.cause == ResizeCause.FAILURE else None,
            from_gpus=resize.from_gpus,
        )
        for resize in status.resizes
        if resize.at is not None
    )


def layout_before(status: PersistedStatus, at_s: float) -> str:
    """The layout, as text, that the plan ran with at an earlier Unix time; empty: the present one."""
    later = (each for each in status.resizes if each.at is not None and at_s < each.at.timestamp())
    resize = next(later, None)
    return (resize.from_layout or "") if resize else ""


def launches_of(status: PersistedStatus) -> tuple[float, ...]:
    """When the present attempt and the recorded resizes were launched, in Unix time."""
    started = status.attempt.started if status.attempt else None
    return tuple(at.timestamp() for at in (started, *(each.at for each in status.resizes)) if at is not None)


def recorded_starts_s(status: PersistedStatus, *, until_s: float) -> tuple[float, ...]:
    """Seconds of resizes before `until_s` to their first step."""
    return tuple(
        max(0.0, (resize.trained_at - resize.at).total_seconds())
        for resize in status.resizes
        if resize.at is not None and resize.trained_at is not None and resize.at.timestamp() < until_s
    )


def over_provisioned(decision: Decision) -> PlanCondition:
    """Whether the plan holds more GPUs than it needs."""
    if decision.action is Action.SHRINK:
        return yes("FewerWouldDo", f"{decision.gpus} GPUs would do: {decision.reason}")
    if decision.bottleneck in {Bottleneck.IDLE, Bottleneck.INPUT} and decision.action is Action.FLAG:
        return yes("NotUsed", decision.reason)
    if decision.missing or decision.confidence is None:
        return unknown(NOT_MEASURED if decision.missing else "NotJudged", decision.reason)
    return no("AsNeeded", decision.reason)
