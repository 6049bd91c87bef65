"""Status conditions: what is known, why, and since when. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer.values import immutable
from rightsizer_api.quantities import format_time

__all__ = [
    "ORDER",
    "Condition",
    "is_true",
    "json_merge_patch",
    "no",
    "reason_of",
    "unknown",
    "updated",
    "yes",
]

ORDER = (
    "Ready",
    "Accepted",
    "Sized",
    "Admitted",
    "Running",
    "Resizing",
    "DeadlineAtRisk",
    "OverProvisioned",
    "MetricsAvailable",
    "Complete",
    "Failed",
)
"""Every type of condition, in the order in which they are listed. Ready's reason is the plan's state."""
_LONGEST = 32_000


@immutable
class Condition:
    """One condition's new value; `status` is True, False or Unknown."""

    status: str
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> Condition:
    """It holds."""
    return Condition(status="True", reason=reason, message=message)


def no(reason: str, message: str = "") -> Condition:
    """It does not hold."""
    return Condition(status="False", reason=reason, message=message)


def unknown(reason: str, message: str = "") -> Condition:
    """Nobody can say yet."""
    return Condition(status="Unknown", reason=reason, message=message)


def updated(
    old: Sequence[Mapping[str, Any]],
    new: Mapping[str, Condition],
    *,
    generation: int,
    now: dt.datetime,
) -> list[dict[str, Any]]:
    """The list with new values; times change with the status only, and what is not in `new` stays."""
    before = {condition["type"]: condition for condition in old}
    result = []
    for kind in ORDER:
        if kind not in new:
            result += [dict(before[kind])] if kind in before else []
            continue
        value, was = new[kind], before.get(kind, {})
        since = was.get("lastTransitionTime") if was.get("status") == value.status else None
        result.append(
            {
                "type": kind,
                "status": value.status,
                "reason": value.reason,
                "message": value.message[:_LONGEST],
                "lastTransitionTime": since or format_time(now),
                "observedGeneration": generation,
            }
        )
    return result


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Whether a condition of a status is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", ()))


def reason_of(status: Mapping[str, Any], kind: str) -> str:
    """A condition's reason; empty if there is none."""
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == kind), "")


def json_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `old` into `new`; empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        was = old.get(key)
        if isinstance(value, Mapping) and isinstance(was, Mapping):
            inner = json_merge_patch(was, value)
            if inner:
                patch[key] = inner
        elif key not in old or was != value:
            patch[key] = value
    return patch
