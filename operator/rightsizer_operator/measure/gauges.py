"""The Prometheus gauges of one plan. Pure."""

from collections.abc import Mapping
from typing import Any

from rightsizer_api.state import ConditionType
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.values.metadata import max_gpus_of

_LATE_S = -1.0
"""The margin of a plan that is late and has no expected end: negative, so that the alert sees it."""


def plan_gauges(plan: Mapping[str, Any]) -> dict[str, float]:
    """The gauges whose values the plan's status holds."""
    status, max_gpus = PersistedStatus.of(plan.get("status") or {}), max_gpus_of(plan)
    sized, observed, told = status.sized, status.observed, status.recommendation
    gauges = {
        "gpus": sized.gpus if sized else None,
        "gpus_saved": max_gpus - sized.gpus if max_gpus and sized else None,
        "predicted_tokens_per_second": sized.tokens_per_s if sized else None,
        "measured_tokens_per_second": observed.tokens_per_s,
        "margin_seconds": _margin_s(status, suspended=bool(plan["spec"].get("suspend"))),
        "recommended_gpus": told.gpus if told else None,
        "attempt": status.attempt.number if status.attempt else None,
        "restarts": observed.restarts,
    }
    return {name: float(value) for name, value in gauges.items() if value is not None}


def plan_info(plan: Mapping[str, Any]) -> dict[str, str]:
    """The labels of rightsizer_plan_info: layout and GPU type; empty before the plan is sized."""
    sized = PersistedStatus.of(plan.get("status") or {}).sized
    return {"layout": sized.layout_text, "gpu_type": sized.gpu_type} if sized else {}


def _margin_s(status: PersistedStatus, *, suspended: bool) -> float | None:
    """Deadline minus expected end; _LATE_S of a plan that waits without a size past its deadline."""
    due, eta = status.deadline, status.eta
    if due is None or eta is not None:
        return (due - eta).total_seconds() if due and eta else None
    waits = not suspended and not status.holds(ConditionType.FAILED)
    return _LATE_S if waits and status.holds(ConditionType.DEADLINE_AT_RISK) else None
