"""A plan's status, parsed when a reconcile begins and written when it ends. Pure.

The status is written before the children. If the operator dies in between, the next reconcile reads the same
attempt, size and layout, and creates the same children under the same names.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_api.state import ConditionType
from rightsizer_engine.values import immutable
from rightsizer_operator.values.attempt import AttemptRecord, FailureRecord
from rightsizer_operator.values.conditions import PlanCondition, conditions_of
from rightsizer_operator.values.metadata import observed_generation, started_at
from rightsizer_operator.values.observed import ObservedProgress
from rightsizer_operator.values.resize import RecommendationRecord, ResizeCause, ResizeRecord
from rightsizer_operator.values.sized import SizedPlan
from rightsizer_operator.values.snapshot import AttemptJob

_MOST_RESIZES = 50


@immutable
class PersistedStatus:
    """A plan's status. `generation` is the spec's that it is sized for; `sized` is None before that."""

    generation: int = 0
    sized: SizedPlan | None = None
    attempt: AttemptRecord | None = None
    resizes: tuple[ResizeRecord, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    observed: ObservedProgress = field(default_factory=ObservedProgress)
    started: dt.datetime | None = None
    deadline: dt.datetime | None = None
    eta: dt.datetime | None = None
    recommendation: RecommendationRecord | None = None
    conditions: Mapping[ConditionType, PlanCondition] = field(default_factory=dict)

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> "PersistedStatus":
        """Parse a status. A size that another program wrote, or half of one, counts as none."""
        attempt, sized = AttemptRecord.of(status.get("attempt")), SizedPlan.of(status.get("sizing"))
        if sized is not None and attempt is not None and attempt.gpus != sized.gpus:
            sized = None
        return cls(
            generation=observed_generation(status),
            sized=sized,
            attempt=attempt,
            resizes=tuple(map(ResizeRecord.of, status.get("resizes", ()))),
            failures=tuple(map(FailureRecord.of, status.get("failures", ()))),
            observed=ObservedProgress.of(status.get("observed")),
            started=started_at(status),
            deadline=parse_time(status.get("deadline")),
            eta=parse_time(status.get("eta")),
            recommendation=RecommendationRecord.of(status.get("recommendation")),
            conditions=conditions_of(status),
        )

    def with_jobs(self, jobs: tuple[AttemptJob, ...]) -> "PersistedStatus":
        """The state with the newest Job's attempt if the status does not know it: the status was wiped."""
        newest, attempt = max(jobs, key=lambda job: job.attempt, default=None), self.attempt
        if newest is None:
            return self
        if attempt is not None and newest.attempt > attempt.number:
            return replace(self, attempt=replace(attempt, number=newest.attempt, job_name=newest.name))
        if attempt is None and not newest.finished:
            found = AttemptRecord(
                number=newest.attempt, gpus=newest.gpus, job_name=newest.name, started=newest.started_at
            )
            return replace(self, attempt=found)
        return self

    def condition(self, kind: ConditionType) -> PlanCondition:
        """A condition; one without a status if it is not set."""
        return self.conditions.get(kind, PlanCondition(status="", reason=""))

    def holds(self, kind: ConditionType) -> bool:
        """Whether a condition is True."""
        return self.condition(kind).holds

    @property
    def has_ended(self) -> bool:
        """Whether the plan was complete or had failed."""
        return self.holds(ConditionType.COMPLETE) or self.holds(ConditionType.FAILED)

    def resized(
        self, to: SizedPlan, *, reason: str, cause: ResizeCause, now: dt.datetime
    ) -> "PersistedStatus":
        """The state with a change of size or layout recorded."""
        record = ResizeRecord(
            at=now,
            from_gpus=self.attempt.gpus if self.attempt else 0,
            to_gpus=to.gpus,
            from_layout=self.sized.layout_text if self.sized else "",
            to_layout=to.layout_text,
            reason=reason,
            cause=cause,
        )
        return replace(self, resizes=(*self.resizes, record)[-_MOST_RESIZES:])

    def document(self) -> dict[str, Any]:
        """The status, without its conditions, samples and selector."""
        times = {"startedAt": self.started, "deadline": self.deadline, "eta": self.eta}
        found = {
            "sizing": self.sized and dict(self.sized.document),
            "attempt": self.attempt and self.attempt.document(),
            "failures": [failure.document() for failure in self.failures],
            "resizes": [resize.document() for resize in self.resizes],
            "observed": self.observed.document(),
            "recommendation": self.recommendation and dict(self.recommendation.document),
            **{name: format_time(at) for name, at in times.items() if at},
        }
        return {"observedGeneration": self.generation} | {name: each for name, each in found.items() if each}
