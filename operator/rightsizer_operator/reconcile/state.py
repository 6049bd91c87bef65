"""A decision on its way: what is known, what the journal will say, what is asked for so far. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer.values import immutable
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import parse_time
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.values.actions import Action
from rightsizer_operator.values.conditions import Condition
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot

__all__ = ["ReconcileState"]


@immutable
class ReconcileState:
    """A snapshot on its way to actions: the plan, the journal as it will be, what is decided so far.

    `recommendation` is a new one, if there is any; `resized`: this very decision changes the size.
    """

    snapshot: Snapshot
    plan: TrainingPlan
    persisted: PersistedStatus
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    recommendation: Mapping[str, Any] | None = None
    resized: bool = False

    @property
    def job(self) -> AttemptJob | None:
        """The current attempt's Job."""
        number = self.persisted.attempt.number if self.persisted.attempt else 0
        return next((job for job in self.snapshot.jobs if job.attempt == number), None)

    @property
    def older_jobs(self) -> tuple[AttemptJob, ...]:
        """Jobs of attempts before that are not over."""
        number = self.persisted.attempt.number if self.persisted.attempt else 0
        return tuple(job for job in self.snapshot.jobs if job.attempt < number and not job.finished)

    def then(self, *actions: Action, **conditions: Condition) -> "ReconcileState":
        """With more decided."""
        return replace(self, actions=(*self.actions, *actions), conditions={**self.conditions, **conditions})

    @property
    def generation(self) -> int:
        """The spec's generation."""
        return int(self.snapshot.plan["metadata"].get("generation", 1))

    @property
    def created(self) -> dt.datetime:
        """When the plan was made; its deadline may count from there."""
        return parse_time(self.snapshot.plan["metadata"].get("creationTimestamp")) or self.snapshot.now

    def condition(self, kind: str) -> Mapping[str, Any]:
        """A condition as it stands in the status."""
        conditions = self.snapshot.status.get("conditions", ())
        return next((c for c in conditions if c["type"] == kind), {})
