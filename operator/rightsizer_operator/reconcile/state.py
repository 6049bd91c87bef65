"""The value that the steps of a reconcile pass on. Pure."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field, replace

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_api.state import ConditionType
from rightsizer_engine.values import immutable
from rightsizer_operator.manifests.pod_spec import AttemptLaunch
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.sizing_response import Size, cached_response
from rightsizer_operator.values.actions import Action
from rightsizer_operator.values.conditions import PlanCondition
from rightsizer_operator.values.metadata import created_at, generation_of
from rightsizer_operator.values.snapshot import AttemptJob, Snapshot


@immutable
class ReconcileState:
    """The snapshot, the parsed plan, the status to persist, and the conditions and actions decided so far.

    `resolved` is the plan in the engine's types. `size` responds to size requests. `launch` is that of the
    size, once it is built. `resized` is true if this reconcile changes the size.
    """

    snapshot: Snapshot
    resolved: ResolvedPlan
    persisted: PersistedStatus
    size: Size = cached_response
    conditions: Mapping[ConditionType, PlanCondition] = field(default_factory=dict)
    actions: tuple[Action, ...] = ()
    launch: AttemptLaunch | None = None
    resized: bool = False

    @property
    def plan(self) -> TrainingPlan:
        """The parsed plan."""
        return self.resolved.plan

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
        """The state with these actions and conditions added; a condition's name is its type."""
        added = {ConditionType(kind): condition for kind, condition in conditions.items()}
        return replace(self, actions=(*self.actions, *actions), conditions={**self.conditions, **added})

    @property
    def generation(self) -> int:
        """The generation of the plan's spec."""
        return generation_of(self.snapshot.plan)

    @property
    def created(self) -> dt.datetime:
        """The plan's creation time, from which `finishWithin` counts."""
        return created_at(self.snapshot.plan) or self.snapshot.now

    @property
    def target_tokens(self) -> float:
        """The tokens on which the plan trains."""
        return self.resolved.workload.tokens

    def holds(self, kind: ConditionType) -> bool:
        """Whether a condition is True, as far as this reconcile has decided it, else as the status has it."""
        decided = self.conditions.get(kind)
        return decided.holds if decided else self.persisted.holds(kind)
