"""What a plan's status remembers between decisions, read and written as one value. Pure.

The status is written before the children: whatever dies in between, the next decision reads the same attempt,
size and layout, and makes the same children, under the same names.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer_api.placeholders import layout_of
from rightsizer_api.quantities import format_time, parse_time
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.values import immutable
from rightsizer_operator.values.snapshot import AttemptJob

_MOST_RESIZES = 50
_NEEDED = frozenset(
    {
        "gpus",
        "gpuType",
        "nodes",
        "layout",
        "globalBatchSequences",
        "stepSeconds",
        "finishSeconds",
        "checkpointIntervalSeconds",
    }
)
CAUSES = ("Plan", "Measured", "Failure")
"""What a resize is due to: the plan changed, a measurement said so, a resize did not succeed."""


@immutable
class AttemptRecord:
    """The current attempt; not `started`: it waits for GPUs, or for the attempt before it to leave."""

    number: int
    gpus: int
    layout: Mapping[str, Any]
    job_name: str
    started: dt.datetime | None = None
    trained_at: dt.datetime | None = None

    def document(self) -> dict[str, Any]:
        """As status.attempt."""
        found: dict[str, Any] = {
            "number": self.number,
            "gpus": self.gpus,
            "layout": dict(self.layout),
            "jobName": self.job_name,
        }
        times = {"startedAt": self.started, "trainedAt": self.trained_at}
        return found | {name: format_time(at) for name, at in times.items() if at}


@immutable
class PersistedStatus:
    """The plan's memory. `generation` is the spec's that `report` was made for."""

    generation: int = 0
    report: Mapping[str, Any] | None = None
    attempt: AttemptRecord | None = None
    resizes: tuple[Mapping[str, Any], ...] = ()
    failures: tuple[Mapping[str, Any], ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    started: dt.datetime | None = None

    @classmethod
    def of(cls, status: Mapping[str, Any], jobs: tuple[AttemptJob, ...]) -> "PersistedStatus":
        """What a status says; a Job of a later attempt than it knows is believed (the status was wiped)."""
        said = status.get("attempt")
        attempt = None
        if said:
            attempt = AttemptRecord(
                number=said["number"],
                gpus=said["gpus"],
                layout=said.get("layout") or {},
                job_name=said.get("jobName", ""),
                started=parse_time(said.get("startedAt")),
                trained_at=parse_time(said.get("trainedAt")),
            )
        report = status.get("sizing")
        if report and not _is_whole(report, attempt):
            report = None  # not ours: the plan is sized again
        newest = max(jobs, key=lambda job: job.attempt, default=None)
        if newest and attempt and newest.attempt > attempt.number:
            attempt = replace(attempt, number=newest.attempt, job_name=newest.name)
        elif newest and not attempt and not newest.finished:
            attempt = AttemptRecord(
                number=newest.attempt,
                gpus=newest.gpus,
                layout={},
                job_name=newest.name,
                started=newest.started_at,
            )
        return cls(
            generation=status.get("observedGeneration", 0),
            report=report,
            attempt=attempt,
            resizes=tuple(status.get("resizes", ())),
            failures=tuple(status.get("failures", ())),
            observed=status.get("observed") or {},
            started=parse_time(status.get("startedAt")),
        )

    @property
    def layout(self) -> Layout:
        """The sized layout."""
        if self.report is None:
            raise LookupError("the plan is not sized")
        return layout_of(self.report["layout"])

    def resized(
        self, to: Mapping[str, Any], *, reason: str, cause: str, now: dt.datetime
    ) -> "PersistedStatus":
        """With a change of size or layout recorded."""
        before = self.attempt
        entry = {
            "at": format_time(now),
            "fromGPUs": before.gpus if before else 0,
            "toGPUs": to["gpus"],
            "fromLayout": (self.report or {}).get("layoutText", ""),
            "toLayout": to.get("layoutText", ""),
            "reason": reason[:1024],
            "cause": cause,
        }
        return replace(self, resizes=(*self.resizes, entry)[-_MOST_RESIZES:])


def _is_whole(report: Mapping[str, Any], attempt: AttemptRecord | None) -> bool:
    """Whether a report has what a launch needs, and its figures agree with each other and the attempt."""
    if not _NEEDED.issubset(report):
        return False
    gpus = report["gpus"]
    return layout_of(report["layout"]).gpus == gpus and (attempt is None or attempt.gpus == gpus)
