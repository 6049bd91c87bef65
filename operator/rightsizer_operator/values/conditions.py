"""Status conditions. Pure."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

from rightsizer_api.quantities import format_time
from rightsizer_engine.values import immutable

ORDER = (
    "Ready",
    "Reconciling",
    "Stalled",
    "Accepted",
    "Sized",
    "Admitted",
    "Running",
    "Resizing",
    "DeadlineAtRisk",
    "OverProvisioned",
    "Idle",
    "MetricsAvailable",
    "Complete",
    "Failed",
)
"""All condition types, in their order in the status. Ready's reason is the plan's state."""
STALLED = ("Invalid", "NoPlan", "DeadlinePassed", "Refused", "Failed")
"""Reasons for which a plan makes no progress until somebody changes it or the cluster's policies."""
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
    texts = ("status", "reason", "message")
    known = {kind: Condition(**{text: c.get(text, "") for text in texts}) for kind, c in current.items()}
    new = {**new, **_progress({**known, **new})}
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


def _progress(conditions: Mapping[str, Condition]) -> dict[str, Condition]:
    """The conditions of kstatus: Stalled if somebody must act, else Reconciling if it is not there yet.

    A running Job does not hide a new spec that was rejected or cannot be sized. A suspended plan is neither.
    """
    ready = conditions.get("Ready", unknown("New"))
    kinds = ("Ready",) if ready.reason in ("Complete", "Failed") else ("Accepted", "Sized", "Ready")
    pending = [conditions[kind] for kind in kinds if kind in conditions]
    pending = [each for each in pending if each.status != "True" and each.reason != "Suspended"]
    stalled = next((each for each in pending if each.reason in STALLED), None)
    if stalled is not None:
        return {"Reconciling": no("Stalled"), "Stalled": yes(stalled.reason, stalled.message)}
    if pending:
        return {"Reconciling": yes(pending[-1].reason, pending[-1].message), "Stalled": no("Progressing")}
    return {"Reconciling": no("Reconciled"), "Stalled": no("Reconciled")}


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
