"""The engine's resize policy asked about one plan as it runs. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from rightsizer.domain.reading import Reading
from rightsizer.resize.policy import decide
from rightsizer.resize.types import Action, Bottleneck, Decision, History, Limits, Mode, Running, Scaling
from rightsizer.units import parse_duration_s
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_api.placeholders import layout_of
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import format_time, parse_time
from rightsizer_operator.values.conditions import Condition, no, unknown, yes
from rightsizer_operator.values.settings import Settings

__all__ = ["Around", "advise", "document", "history_of", "limits_of", "over_provisioned", "unmeasured"]


@immutable
class Around:
    """What is around a plan when it is judged: GPUs it could have besides its own, and who waits for some."""

    free_gpus: int | None
    others_waiting: bool | None
    trained_s: float | None


def advise(
    plan: TrainingPlan,
    status: Mapping[str, Any],
    *,
    reading: Reading,
    around: Around,
    scaling: Scaling,
    settings: Settings,
    now: dt.datetime,
) -> Decision:
    """What to do about the size of a plan that runs."""
    due = parse_time(status.get("deadline"))
    left = sizing.resolve(plan).workload.tokens - (reading.tokens_done or 0.0)
    attempt = status["attempt"]
    running = Running(
        gpus=attempt["gpus"],
        layout=layout_of(attempt["layout"]),
        scaling=scaling,
        tokens_left=left if reading.tokens_done is not None else None,
        deadline_left_s=(due - now).total_seconds() if due else None,
        confidence=plan.spec.deadline.confidence if plan.spec.deadline else 0.9,
        trained_s=around.trained_s,
    )
    limits = limits_of(plan, status, around=around, settings=settings)
    return decide(reading, running, limits, history_of(status), now_s=now.timestamp())


def unmeasured(status: Mapping[str, Any], why: str) -> Decision:
    """Nothing is done: what should have been measured was not, for this reason."""
    attempt = status["attempt"]
    return Decision(
        action=Action.KEEP,
        gpus=attempt["gpus"],
        layout=layout_of(attempt["layout"]),
        reason=f"unknown: {why}",
        bottleneck=Bottleneck.UNKNOWN,
    )


def limits_of(plan: TrainingPlan, status: Mapping[str, Any], *, around: Around, settings: Settings) -> Limits:
    """What the plan and the cluster allow; a stated number of GPUs is not touched."""
    wish, resources = plan.spec.elasticity, plan.spec.resources
    checkpoint, interval_s = plan.spec.launch.checkpoint, None
    if checkpoint is not None:
        stated = checkpoint.interval != "auto"
        interval_s = (
            parse_duration_s(checkpoint.interval) if stated else status["sizing"]["checkpointIntervalSeconds"]
        )
    return Limits(
        mode=Mode(wish.mode.value),
        cap=settings.cap(plan.metadata.namespace or ""),
        min_gpus=resources.gpus or wish.min_gpus or resources.min_gpus,
        max_gpus=resources.gpus or wish.max_gpus or resources.max_gpus,
        free_gpus=around.free_gpus,
        cool_down_s=settings.cool_down_s,
        checkpoint_interval_s=interval_s,
        restart_s=settings.restart_s,
        saves_first=True,
        warm_up_s=settings.warm_up_s,
        least_window_s=settings.window_s,
        pressure=settings.give_back,
        others_waiting=around.others_waiting,
    )


def history_of(status: Mapping[str, Any]) -> History:
    """What was done to it before, as its status remembers."""
    rows = status.get("resizes") or ()
    last = parse_time(rows[-1]["at"]) if rows else None
    return History(
        last_resize_s=last.timestamp() if last else None,
        failed_gpus=tuple(row["fromGPUs"] for row in rows if row.get("cause") == "Failure"),
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


def over_provisioned(decision: Decision) -> Condition:
    """Whether fewer GPUs would do, as far as anybody can say."""
    if decision.action is Action.SHRINK:
        return yes("FewerWouldDo", f"{decision.gpus} GPUs would do: {decision.reason}")
    if decision.bottleneck in {Bottleneck.IDLE, Bottleneck.INPUT} and decision.action is Action.FLAG:
        return yes("NotUsed", decision.reason)
    if decision.confidence is None:
        return unknown("NotMeasured", decision.reason)
    return no("AsNeeded", decision.reason)
