"""A decision on its way: what is known, what the journal will say, what is asked for so far. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer.values import immutable
from rightsizer_api.plan import TrainingPlan
from rightsizer_operator.reconcile.persisted import Journal
from rightsizer_operator.values.actions import Action
from rightsizer_operator.values.conditions import Condition
from rightsizer_operator.values.snapshot import Job, Snapshot, moment

__all__ = ["Case"]


@immutable
class Case:
    """A snapshot on its way to actions: the plan, the journal as it will be, what is decided so far.

    `recommendation` is a new one, if there is any; `resized`: this very decision changes the size.
    """

    world: Snapshot
    plan: TrainingPlan
    journal: Journal
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    recommendation: Mapping[str, Any] | None = None
    resized: bool = False

    @property
    def job(self) -> Job | None:
        """The current attempt's Job."""
        number = self.journal.attempt.number if self.journal.attempt else 0
        return next((job for job in self.world.jobs if job.attempt == number), None)

    @property
    def older(self) -> tuple[Job, ...]:
        """Jobs of attempts before that are not over."""
        number = self.journal.attempt.number if self.journal.attempt else 0
        return tuple(job for job in self.world.jobs if job.attempt < number and not job.finished)

    def then(self, *actions: Action, **conditions: Condition) -> "Case":
        """With more decided."""
        return replace(self, actions=(*self.actions, *actions), conditions={**self.conditions, **conditions})

    @property
    def generation(self) -> int:
        """The spec's generation."""
        return int(self.world.plan["metadata"].get("generation", 1))

    @property
    def created(self) -> dt.datetime:
        """When the plan was made; its deadline may count from there."""
        return moment(self.world.plan["metadata"].get("creationTimestamp")) or self.world.now

    def said(self, kind: str) -> Mapping[str, Any]:
        """A condition as it stands in the status."""
        conditions = self.world.status.get("conditions", ())
        return next((c for c in conditions if c["type"] == kind), {})
