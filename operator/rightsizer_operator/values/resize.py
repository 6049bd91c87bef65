"""Changes of a plan's size, made and recommended, as the status holds them. Pure."""

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_engine.resize.types import Decision
from rightsizer_engine.values import immutable

_LONGEST, _MOST_EVIDENCE = 1024, 16  # what the status schema holds


class ResizeCause(enum.StrEnum):
    """The cause of a resize: the plan changed, a measurement, or a resize that failed."""

    PLAN = "Plan"
    MEASURED = "Measured"
    FAILURE = "Failure"


@immutable
class ResizeRecord:
    """One of status.resizes. `trained_at` is when this size was first seen to train."""

    at: dt.datetime | None
    from_gpus: int
    to_gpus: int
    reason: str
    from_layout: str | None = None
    to_layout: str | None = None
    cause: str | None = None
    trained_at: dt.datetime | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "ResizeRecord":
        """Parse one of status.resizes."""
        return cls(
            at=parse_time(document["at"]),
            from_gpus=document["fromGPUs"],
            to_gpus=document["toGPUs"],
            reason=document.get("reason", ""),
            from_layout=document.get("fromLayout"),
            to_layout=document.get("toLayout"),
            cause=document.get("cause"),
            trained_at=parse_time(document.get("trainedAt")),
        )

    def document(self) -> dict[str, Any]:
        """One of status.resizes."""
        times = {"at": self.at, "trainedAt": self.trained_at}
        words = {"fromLayout": self.from_layout, "toLayout": self.to_layout, "cause": self.cause}
        return {
            "fromGPUs": self.from_gpus,
            "toGPUs": self.to_gpus,
            "reason": self.reason[:_LONGEST],
            **{name: word for name, word in words.items() if word is not None},
            **{name: format_time(time) for name, time in times.items() if time is not None},
        }


@immutable
class RecommendationRecord:
    """status.recommendation."""

    action: str
    reason: str
    gpus: int | None = None
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> "RecommendationRecord | None":
        """Parse a status.recommendation."""
        if not document:
            return None
        return cls(
            action=document.get("action", ""),
            reason=document.get("reason", ""),
            gpus=document.get("gpus"),
            document=document,
        )

    @classmethod
    def from_decision(cls, decision: Decision, now: dt.datetime) -> "RecommendationRecord":
        """A decision in the status' words."""
        reason = f"{decision.reason}; {decision.withheld}" if decision.withheld else decision.reason
        action, reason = decision.action.value.capitalize(), reason[:_LONGEST]
        document = {
            "action": action,
            "gpus": decision.gpus,
            "reason": reason,
            "evidence": [line[:_LONGEST] for line in decision.evidence[:_MOST_EVIDENCE]],
            "priceGPUHours": round(decision.price_gpu_hours, 3),
            "savesGPUHours": round(decision.saves_gpu_hours, 3),
            "at": format_time(now),
        }
        return cls(action=action, reason=reason, gpus=decision.gpus, document=document)
