"""Status conditions. Pure."""

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
    "merge_conditions",
    "no",
    "reason_of",
    "unknown",
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
"""All condition types, in their order in the status. Ready's reason is the plan's state."""
_MAX_MESSAGE = 32_000


@immutable
class Condition:
    """One condition's new value; `status` is True, False or Unknown."""

    status: str
    reason: str
    message: str = ""


def yes(reason: str, message: str = "") -> Condition:
    """A condition that is True."""
    return Condition(status="True", reason=reason, message=message)


def no(reason: str, message: str = "") -> Condition:
    """A condition that is False."""
    return Condition(status="False", reason=reason, message=message)


def unknown(reason: str, message: str = "") -> Condition:
    """A condition that is Unknown."""
    return Condition(status="Unknown", reason=reason, message=message)


def merge_conditions(
    old: Sequence[Mapping[str, Any]],
    new: Mapping[str, Condition],
    *,
    generation: int,
    now: dt.datetime,
) -> list[dict[str, Any]]:
    """The old conditions with the new ones merged in. lastTransitionTime changes only with the status."""
    current = {condition["type"]: condition for condition in old}
    result = []
    for kind in ORDER:
        if kind not in new:
            result += [dict(current[kind])] if kind in current else []
            continue
        value, previous = new[kind], current.get(kind, {})
        unchanged = previous.get("status") == value.status
        since = previous.get("lastTransitionTime") if unchanged else None
        result.append(
            {
                "type": kind,
                "status": value.status,
                "reason": value.reason,
                "message": value.message[:_MAX_MESSAGE],
                "lastTransitionTime": since or format_time(now),
                "observedGeneration": generation,
            }
        )
    return result


def is_true(status: Mapping[str, Any], kind: str) -> bool:
    """Whether a condition of the status is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", ()))


def reason_of(status: Mapping[str, Any], kind: str) -> str:
    """A condition's reason; empty if it is not set."""
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == kind), "")


def json_merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`; empty if they are equal."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        previous = old.get(key)
        if isinstance(value, Mapping) and isinstance(previous, Mapping):
            nested = json_merge_patch(previous, value)
            if nested:
                patch[key] = nested
        elif key not in old or previous != value:
            patch[key] = value
    return patch
