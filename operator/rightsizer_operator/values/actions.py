"""The actions of a reconcile. The controller executes them in order, independent ones at the same time."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from rightsizer_api.state import ConditionType
from rightsizer_engine.values import immutable

_AT_ONCE = (
    ("NetworkPolicy",),
    ("ConfigMap", "ResourceClaimTemplate", "Service", "ReplicaSet", "Secret"),
)
"""Kinds of children that do not need each other. Pods come after the policies, a Job after all of these."""


@immutable
class PatchStatus:
    """Write the plan's status; a conflict (409) if the plan has changed since it was read."""

    status: Mapping[str, Any]


@immutable
class Apply:
    """Create or update a child; an error if an object of that name is not owned by the plan."""

    child: Mapping[str, Any]


@immutable
class PatchJob:
    """Change the size, the suspension or the annotations of a Job, or of another object that carries one."""

    name: str
    spec: Mapping[str, Any]
    kind: str = "Job"
    annotations: Mapping[str, str] = field(default_factory=dict)


@immutable
class PatchPlan:
    """Change fields of the plan's spec; an error if another plan of that name has replaced this one."""

    uid: str
    spec: Mapping[str, Any]


@immutable
class PatchWorkload:
    """Set a Workload's spec.active: this suspends or resumes a queued Job."""

    name: str
    active: bool


@immutable
class Delete:
    """Delete a child, or the plan itself. `force` skips the grace period and requires this uid.

    With a `version`, a conflict (409) if the object has changed since it was read.
    """

    kind: str
    name: str
    uid: str = ""
    version: str = ""
    force: bool = False


@immutable
class EmitEvent:
    """Create an Event for the plan."""

    reason: str
    message: str
    warning: bool = False


@immutable
class Requeue:
    """Reconcile again after this long, even without a watch event."""

    after_s: float


@immutable
class SearchSize:
    """Search for a size outside the event loop, then reconcile again."""

    size_request: Any


Action = (
    PatchStatus | Apply | PatchJob | PatchPlan | PatchWorkload | Delete | EmitEvent | Requeue | SearchSize
)


def batches(actions: Sequence[Action]) -> Iterator[tuple[Action, ...]]:
    """The actions in order, those that may be carried out at the same time together."""
    for _, group in itertools.groupby(enumerate(actions), key=_place):
        yield tuple(action for _, action in group)


def _place(numbered: tuple[int, Action]) -> tuple[str, int]:
    number, action = numbered
    kind = str(action.child["kind"]) if isinstance(action, Apply) else ""
    together = next((index for index, kinds in enumerate(_AT_ONCE) if kind in kinds), None)
    return ("alone", number) if together is None else ("together", together)


def describe(action: Action) -> str:
    """A description of the action, for the log of a dry run."""
    match action:
        case PatchStatus(status=status):
            ready = next((c["reason"] for c in status["conditions"] if c["type"] == ConditionType.READY), "")
            text = f"set the status ({ready})"
        case Apply(child=child):
            text = f"apply {child['kind']} {child['metadata']['name']}"
        case PatchJob(kind=kind, name=name, spec=spec, annotations=annotations):
            text = f"patch {kind} {name}: {dict(spec) | dict(annotations)}"
        case PatchPlan(spec=spec):
            text = f"patch the plan: {dict(spec)}"
        case PatchWorkload(name=name, active=active):
            text = f"{'activate' if active else 'deactivate'} Workload {name}"
        case Delete(kind=kind, name=name):
            text = f"delete {kind} {name}"
        case EmitEvent(reason=reason, message=message):
            text = f"emit event {reason}: {message}"
        case Requeue(after_s=after_s):
            text = f"requeue after {after_s:g} s"
        case SearchSize():
            text = "search for a size"
    return text
