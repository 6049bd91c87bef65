"""The engine's resize policy applied to one running plan. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api import sizing
from rightsizer_api.placeholders import layout_of
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import format_time, parse_time
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
from rightsizer_operator.values.conditions import PlanCondition, no, unknown, yes
from rightsizer_operator.values.settings import OperatorSettings

NOT_MEASURED = "NotMeasured"
"""The condition's reason if data for a decision are missing."""


@immutable
class ResizeContext:
    """What a decision needs besides the plan: GPUs free for it, demand, and what its marks say.

    `visited` are the rates measured at earlier sizes.
    """

    free_gpus: int | None
    others_waiting: bool | None
    trained_s: float | None
    restart_s: float
    visited: tuple[Visit, ...] = ()


def policy_inputs(
    plan: TrainingPlan,
    status: Mapping[str, Any],
    *,
    reading: Reading,
    context: ResizeContext,
    scaling: Scaling,
    settings: OperatorSettings,
    now: dt.datetime,
) -> tuple[Reading, Running, Limits, History]:
    """The inputs of the policy for a running plan."""
    running = running_job(plan, status, reading=reading, context=context, scaling=scaling, now=now)
    limits = limits_of_plan(plan, status, context=context, settings=settings)
    return reading, running, limits, replace(history_of_status(status), visited=context.visited)


def advise(plan: TrainingPlan, status: Mapping[str, Any], *, now: dt.datetime, **inputs: Any) -> Decision:
    """Decide about the size of a running plan; `inputs` as for `policy_inputs`."""
    return decide(*policy_inputs(plan, status, now=now, **inputs), now_s=now.timestamp())


def running_job(
    plan: TrainingPlan,
    status: Mapping[str, Any],
    *,
    reading: Reading,
    context: ResizeContext,
    scaling: Scaling,
    now: dt.datetime,
) -> Running:
    """The plan as it runs."""
    deadline, attempt = parse_time(status.get("deadline")), status["attempt"]
    return running_of(
        plan,
        reading,
        gpus=attempt["gpus"],
        layout=layout_of(attempt["layout"]),
        scaling=scaling,
        target_tokens=sizing.resolve(plan).workload.tokens,
        deadline_left_s=seconds_left(deadline.timestamp() if deadline else None, now_s=now.timestamp()),
        trained_s=context.trained_s,
    )


def unmeasured(status: Mapping[str, Any], missing: Missing) -> Decision:
    """No resize, since measurements are missing."""
    attempt = status["attempt"]
    return Decision(
        action=Action.KEEP,
        gpus=attempt["gpus"],
        layout=layout_of(attempt["layout"]),
        reason=str(missing),
        missing=missing,
        bottleneck=Bottleneck.UNKNOWN,
    )


def limits_of_plan(
    plan: TrainingPlan, status: Mapping[str, Any], *, context: ResizeContext, settings: OperatorSettings
) -> Limits:
    """The limits that the plan, the administrator and the cluster set. A staged plan grows to its reserve."""
    opening, (least, most) = status["sizing"].get("opening"), gpu_bounds(plan)
    if opening:
        most = min(most or opening["reserveGPUs"], opening["reserveGPUs"])
    return limits_of(
        plan,
        tuning_of(settings, plan.metadata.namespace or ""),
        gpus=(least, most),
        takes_spare=most is not None,
        look_s=(settings.look_s or opening["lookAfterSeconds"]) if opening else None,
        checkpoint_interval_s=_checkpoint_interval_s(plan, status),
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


def _checkpoint_interval_s(plan: TrainingPlan, status: Mapping[str, Any]) -> float | None:
    checkpoint = plan.spec.launch.checkpoint
    if checkpoint is None:
        return None
    if checkpoint.interval == "auto":
        return float(status["sizing"]["checkpointIntervalSeconds"])
    return parse_duration_s(checkpoint.interval)


def history_of_status(status: Mapping[str, Any]) -> History:
    """Earlier resizes of a plan, from its status."""
    return history_of(
        SizeChange(
            at_s=time.timestamp(),
            failed_gpus=row["fromGPUs"] if row.get("cause") == "Failure" else None,
            from_gpus=row["fromGPUs"],
        )
        for row in status.get("resizes") or ()
        if (time := parse_time(row["at"])) is not None
    )


def layout_before(status: Mapping[str, Any], at_s: float) -> str:
    """The layout, as text, that the plan ran with at an earlier Unix time; empty: the present one."""
    for row in status.get("resizes") or ():
        if (time := parse_time(row["at"])) is not None and at_s < time.timestamp():
            return str(row.get("fromLayout", ""))
    return ""


def launches_of(status: Mapping[str, Any]) -> tuple[float, ...]:
    """When the present attempt and the recorded resizes were launched, in Unix time."""
    rows = status.get("resizes") or ()
    texts = (status.get("attempt", {}).get("startedAt"), *(row["at"] for row in rows))
    return tuple(time.timestamp() for text in texts if (time := parse_time(text)) is not None)


def recorded_starts_s(status: Mapping[str, Any], *, until_s: float) -> tuple[float, ...]:
    """How long resizes before `until_s` took to their first step, from the status."""
    rows = ((parse_time(row["at"]), parse_time(row.get("trainedAt"))) for row in status.get("resizes") or ())
    return tuple(
        max(0.0, (trained - at).total_seconds())
        for at, trained in rows
        if at is not None and trained is not None and at.timestamp() < until_s
    )


def document(decision: Decision, now: dt.datetime) -> dict[str, Any]:
    """The decision as status.recommendation."""
    reason = f"{decision.reason}; {decision.withheld}" if decision.withheld else decision.reason
    return {
        "action": decision.action.value.capitalize(),
        "gpus": decision.gpus,
        "reason": reason[:1024],
        "evidence": [line[:1024] for line in decision.evidence[:16]],
        "priceGPUHours": round(decision.price_gpu_hours, 3),
        "savesGPUHours": round(decision.saves_gpu_hours, 3),
        "at": format_time(now),
    }


def over_provisioned(decision: Decision) -> PlanCondition:
    """Whether the plan holds more GPUs than it needs."""
    if decision.action is Action.SHRINK:
        return yes("FewerWouldDo", f"{decision.gpus} GPUs would do: {decision.reason}")
    if decision.bottleneck in {Bottleneck.IDLE, Bottleneck.INPUT} and decision.action is Action.FLAG:
        return yes("NotUsed", decision.reason)
    if decision.missing or decision.confidence is None:
        return unknown(NOT_MEASURED if decision.missing else "NotJudged", decision.reason)
    return no("AsNeeded", decision.reason)
