"""The current attempt and its failures, as status.attempt and status.failures hold them. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_engine.values import immutable


@immutable
class AttemptRecord:
    """The current attempt; not `started`: it waits for GPUs, or for the attempt before it to leave.

    `layout` is the part of status.sizing that it was made from.
    """

    number: int
    gpus: int
    job_name: str
    layout: Mapping[str, Any] = field(default_factory=dict)
    started: dt.datetime | None = None
    trained_at: dt.datetime | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> "AttemptRecord | None":
        """Parse a status.attempt."""
        if not document:
            return None
        return cls(
            number=document["number"],
            gpus=document["gpus"],
            job_name=document.get("jobName", ""),
            layout=document.get("layout") or {},
            started=parse_time(document.get("startedAt")),
            trained_at=parse_time(document.get("trainedAt")),
        )

    def document(self) -> dict[str, Any]:
        """As status.attempt."""
        found: dict[str, Any] = {"number": self.number, "gpus": self.gpus, "jobName": self.job_name}
        times = {"startedAt": self.started, "trainedAt": self.trained_at}
        found |= {name: format_time(at) for name, at in times.items() if at}
        return found | ({"layout": dict(self.layout)} if self.layout else {})


@immutable
class FailureRecord:
    """A failure of the attempt's pods. `trained`: training had advanced since the failure before."""

    at: dt.datetime | None
    pod: str
    message: str
    step: int = 0
    trained: bool = False
    exit_code: int | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "FailureRecord":
        """Parse one of status.failures."""
        return cls(
            at=parse_time(document.get("at")),
            pod=document.get("pod", ""),
            message=document.get("message", ""),
            step=int(document.get("step", 0)),
            trained=bool(document.get("trained")),
            exit_code=document.get("exitCode"),
        )

    def document(self) -> dict[str, Any]:
        """As one of status.failures."""
        found: dict[str, Any] = {
            "pod": self.pod,
            "message": self.message,
            "step": self.step,
            "trained": self.trained,
        }
        found |= {"at": format_time(self.at)} if self.at else {}
        return found | ({"exitCode": self.exit_code} if self.exit_code is not None else {})
