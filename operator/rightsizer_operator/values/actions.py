"""What a decision may ask for. Values; `door` carries them out, in order."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer.values import immutable

__all__ = [
    "Action",
    "Apply",
    "Delete",
    "EmitEvent",
    "PatchJob",
    "PatchStatus",
    "PatchWorkload",
    "Requeue",
    "describe",
]


@immutable
class PatchStatus:
    """Make the plan's status this, if nobody else has touched the plan since it was read."""

    status: Mapping[str, Any]


@immutable
class Apply:
    """See that this child exists; one of the same name that is not this plan's is an error."""

    child: Mapping[str, Any]


@immutable
class PatchJob:
    """Change a Job: its parallelism and completions, or suspend; `notes` are annotations."""

    name: str
    spec: Mapping[str, Any]
    notes: Mapping[str, str] = field(default_factory=dict)


@immutable
class PatchWorkload:
    """Tell Kueue that a Workload may run, or may not: what suspends and resumes a Job that is queued."""

    name: str
    active: bool


@immutable
class Delete:
    """Delete a child; `force`: at once, whatever its node says, and only if it still has this uid."""

    kind: str
    name: str
    uid: str = ""
    force: bool = False


@immutable
class EmitEvent:
    """Tell it in an Event of the plan."""

    reason: str
    message: str
    warning: bool = False


@immutable
class Requeue:
    """Look again by then, even if nothing is heard."""

    after_s: float


Action = PatchStatus | Apply | PatchJob | PatchWorkload | Delete | EmitEvent | Requeue


def describe(action: Action) -> str:
    """The action in words, for a dry run."""
    match action:
        case PatchStatus(status=status):
            ready = next((c["reason"] for c in status["conditions"] if c["type"] == "Ready"), "")
            words = f"set the status ({ready})"
        case Apply(child=child):
            words = f"apply {child['kind']} {child['metadata']['name']}"
        case PatchJob(name=name, spec=spec, notes=notes):
            words = f"patch Job {name}: {dict(spec) | dict(notes)}"
        case PatchWorkload(name=name, active=active):
            words = f"{'activate' if active else 'deactivate'} Workload {name}"
        case Delete(kind=kind, name=name):
            words = f"delete {kind} {name}"
        case EmitEvent(reason=reason, message=message):
            words = f"tell {reason}: {message}"
        case Requeue(after_s=after_s):
            words = f"look again within {after_s:g} s"
    return words
