"""The Prometheus gauges of one plan. Pure."""

from collections.abc import Mapping
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_api.state import ConditionType
from rightsizer_operator.values.conditions import is_true

_LATE_S = -1.0
"""The margin of a plan that is late and has no expected end: negative, so that the alert sees it."""


def plan_gauges(plan: Mapping[str, Any]) -> dict[str, float]:
    """The gauges whose values the plan's status holds."""
    status = plan.get("status") or {}
    sizing, observed = status.get("sizing") or {}, status.get("observed") or {}
    max_gpus = plan["spec"].get("resources", {}).get("maxGPUs")
    recommendation = status.get("recommendation") or {}
    gauges = {
        "gpus": sizing.get("gpus"),
        "gpus_saved": max_gpus - sizing["gpus"] if max_gpus and sizing.get("gpus") else None,
        "predicted_tokens_per_second": sizing.get("tokensPerSecond"),
        "measured_tokens_per_second": observed.get("tokensPerSecond"),
        "margin_seconds": _margin_s(status, suspended=bool(plan["spec"].get("suspend"))),
        "recommended_gpus": recommendation.get("gpus"),
        "attempt": (status.get("attempt") or {}).get("number"),
        "restarts": observed.get("restarts"),
    }
    return {name: float(value) for name, value in gauges.items() if value is not None}


def plan_info(plan: Mapping[str, Any]) -> dict[str, str]:
    """The labels of rightsizer_plan_info: layout and GPU type; empty before the plan is sized."""
    sizing = (plan.get("status") or {}).get("sizing") or {}
    return {"layout": sizing["layoutText"], "gpu_type": sizing["gpuType"]} if sizing else {}


def _margin_s(status: Mapping[str, Any], *, suspended: bool) -> float | None:
    """Deadline minus expected end; _LATE_S of a plan that waits without a size past its deadline."""
    due, eta = parse_time(status.get("deadline")), parse_time(status.get("eta"))
    if due is None or eta is not None:
        return (due - eta).total_seconds() if due and eta else None
    waits = not suspended and not is_true(status, ConditionType.FAILED)
    return _LATE_S if waits and is_true(status, ConditionType.DEADLINE_AT_RISK) else None
