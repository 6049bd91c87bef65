"""The value that the steps of a reconcile pass on. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import parse_time
from rightsizer_api.state import ConditionType
from rightsizer_engine.values import immutable
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.sizing_answer import Size, answered
from rightsizer_operator.values.actions import Action
from rightsizer_operator.values.conditions import PlanCondition
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot


@immutable
class ReconcileState:
    """The snapshot, the parsed plan, the status to persist, and the conditions and actions decided so far.

    `size` answers sizing questions. `recommendation` replaces the status' one if set. `resized` is true if
    this reconcile changes the size.
    """

    snapshot: Snapshot
    plan: TrainingPlan
    persisted: PersistedStatus
    size: Size = answered
    conditions: Mapping[ConditionType, PlanCondition] = field(default_factory=dict)
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
        """Unfinished Jobs of earlier attempts."""
        number = self.persisted.attempt.number if self.persisted.attempt else 0
        return tuple(job for job in self.snapshot.jobs if job.attempt < number and not job.finished)

    def then(self, *actions: Action, **conditions: PlanCondition) -> "ReconcileState":
        """With these actions and conditions added; a condition's name is its type."""
        added = {ConditionType(kind): condition for kind, condition in conditions.items()}
        return replace(self, actions=(*self.actions, *actions), conditions={**self.conditions, **added})

    @property
    def generation(self) -> int:
        """The generation of the plan's spec."""
        return int(self.snapshot.plan["metadata"].get("generation", 1))

    @property
    def created(self) -> dt.datetime:
        """The plan's creation time, from which `finishWithin` counts."""
        return parse_time(self.snapshot.plan["metadata"].get("creationTimestamp")) or self.snapshot.now

    def condition(self, kind: ConditionType) -> Mapping[str, Any]:
        """A condition of the current status; empty if it is not set."""
        conditions = self.snapshot.status.get("conditions", ())
        return next((c for c in conditions if c["type"] == kind), {})
