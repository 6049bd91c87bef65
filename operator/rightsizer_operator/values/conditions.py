"""Status conditions. Pure."""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_api.state import ConditionType, State
from rightsizer_engine.values import immutable

_MAX_MESSAGE = 32_000


@immutable
class PlanCondition:
    """One condition; `status` is True, False or Unknown. `since` and `generation` are those of the status."""

    status: str
    reason: str
    message: str = ""
    since: dt.datetime | None = None
    generation: int = 0

    @property
    def holds(self) -> bool:
        """Whether it is True."""
        return self.status == "True"

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "PlanCondition":
        """Parse one of status.conditions."""
        return cls(
            status=document["status"],
            reason=document.get("reason", ""),
            message=document.get("message", ""),
            since=parse_time(document.get("lastTransitionTime")),
            generation=document.get("observedGeneration", 0),
        )

    def document(self, kind: ConditionType) -> dict[str, Any]:
        """One of status.conditions."""
        since = {"lastTransitionTime": format_time(self.since)} if self.since else {}
        return {
            "type": str(kind),
            "status": self.status,
            "reason": str(self.reason),
            "message": self.message[:_MAX_MESSAGE],
            "observedGeneration": self.generation,
            **since,
        }


def yes(reason: str, message: str = "") -> PlanCondition:
    """A condition that is True."""
    return PlanCondition(status="True", reason=reason, message=message)


def no(reason: str, message: str = "") -> PlanCondition:
    """A condition that is False."""
    return PlanCondition(status="False", reason=reason, message=message)


def unknown(reason: str, message: str = "") -> PlanCondition:
    """A condition that is Unknown."""
    return PlanCondition(status="Unknown", reason=reason, message=message)


def conditions_of(status: Mapping[str, Any]) -> dict[ConditionType, PlanCondition]:
    """Parse status.conditions; a type of another version is dropped."""
    listed = {each["type"]: each for each in status.get("conditions", ())}
    return {kind: PlanCondition.of(listed[kind]) for kind in ConditionType if kind in listed}


def merge_conditions(
    old: Mapping[ConditionType, PlanCondition],
    new: Mapping[ConditionType, PlanCondition],
    *,
    generation: int,
    now: dt.datetime,
) -> list[dict[str, Any]]:
    """The old conditions with the new ones merged in. `since` changes only with the status."""
    merged = dict(old)
    for kind, value in {**new, **_progress({**old, **new})}.items():
        previous = old.get(kind)
        unchanged = previous is not None and previous.status == value.status
        since = previous.since if previous is not None and unchanged else None
        merged[kind] = replace(value, since=since or now, generation=generation)
    return [merged[kind].document(kind) for kind in ConditionType if kind in merged]


def _progress(conditions: Mapping[ConditionType, PlanCondition]) -> dict[ConditionType, PlanCondition]:
    """The conditions of kstatus: Stalled if somebody must act, else Reconciling if it is not there yet.

    A running Job does not hide a new spec that was rejected or cannot be sized. A suspended plan is neither.
    """
    ready = conditions.get(ConditionType.READY, unknown(State.NEW))
    kinds = [ConditionType.READY]
    if not _is(ready, lambda state: state.ended):
        kinds = [ConditionType.ACCEPTED, ConditionType.SIZED, *kinds]
    pending = [conditions[kind] for kind in kinds if kind in conditions]
    pending = [each for each in pending if each.status != "True" and each.reason != State.SUSPENDED]
    stalled = next((each for each in pending if _is(each, lambda state: state.stalls)), None)
    if stalled is not None:
        return {
            ConditionType.RECONCILING: no(ConditionType.STALLED),
            ConditionType.STALLED: yes(stalled.reason, stalled.message),
        }
    if pending:
        return {
            ConditionType.RECONCILING: yes(pending[-1].reason, pending[-1].message),
            ConditionType.STALLED: no("Progressing"),
        }
    return dict.fromkeys((ConditionType.RECONCILING, ConditionType.STALLED), no("Reconciled"))


def _is(condition: PlanCondition, trait: Callable[[State], bool]) -> bool:
    """Whether a condition's reason is a state with this trait."""
    state = State.of(condition.reason)
    return state is not None and trait(state)


def is_true(status: Mapping[str, Any], kind: ConditionType) -> bool:
    """Whether a condition of the status is True."""
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", ()))


def reason_of(status: Mapping[str, Any], kind: ConditionType) -> str:
    """A condition's reason; empty if it is not set."""
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == kind), "")


def state_of(status: Mapping[str, Any]) -> State:
    """The plan's state; NEW without one, or with one that another version of the operator wrote."""
    return State.of(reason_of(status, ConditionType.READY)) or State.NEW


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
