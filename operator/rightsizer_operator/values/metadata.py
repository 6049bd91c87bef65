"""The metadata of API objects. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from rightsizer_api.plan import KIND
from rightsizer_api.quantities import parse_time
from rightsizer_operator.values.names import LABEL_PLAN

Key = tuple[str, str]
"""Namespace and name of a plan."""
Object = Mapping[str, Any]


def log_fields(key: Key) -> dict[str, str]:
    """The fields of a log record about a plan (`extra`)."""
    return {"namespace": key[0], "plan": key[1]}


def key_of(raw: Object) -> Key:
    """An object's namespace and name."""
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def version_of(raw: Object) -> int:
    """An object's version, which grows with each change; 0 of one that does not exist yet."""
    return int(raw["metadata"].get("resourceVersion", 0))


def generation_of(raw: Object) -> int:
    """The generation of an object's spec."""
    return int(raw["metadata"].get("generation", 1))


def created_at(raw: Object) -> dt.datetime | None:
    """When an object was created."""
    return parse_time(raw["metadata"].get("creationTimestamp"))


def is_being_deleted(raw: Object) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in raw["metadata"]


def api_version_of(raw: Object) -> str:
    """The group and version of an object's kind; empty in an item of a list."""
    return str(raw.get("apiVersion", ""))


def owner_uids(raw: Object) -> set[str]:
    """The uids of an object's owners; never an empty one, which objects have that do not exist yet."""
    return {owner["uid"] for owner in raw["metadata"].get("ownerReferences", ())} - {""}


def owner_name(raw: Object, kind: str) -> str:
    """The name of an object's first owner of a kind; empty without one."""
    owners = raw["metadata"].get("ownerReferences", ())
    return next((owner["name"] for owner in owners if owner["kind"] == kind), "")


def controller_uid(raw: Object) -> str:
    """The uid of an object's controller; empty without one."""
    references = raw["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in references if owner.get("controller")), "")


def plan_key(raw: Object) -> Key:
    """The plan that owns an object: by owner reference, else by label."""
    metadata = raw["metadata"]
    return metadata["namespace"], owner_name(raw, KIND) or metadata.get("labels", {}).get(LABEL_PLAN, "")


def subject_of(event: Object) -> Key:
    """The namespace and the name of what an Event is about."""
    subject = event["involvedObject"]
    return subject["namespace"], subject["name"]


def event_time(event: Object) -> str:
    """When an Event was last seen."""
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def without_managed_fields(raw: Object) -> dict[str, Any]:
    """The object without the API server's list of field owners: unused, and as large as the rest."""
    return {**raw, "metadata": {key: each for key, each in raw["metadata"].items() if key != "managedFields"}}


def max_gpus_of(plan: Object) -> int | None:
    """The most GPUs that a plan's spec allows."""
    most: int | None = (plan["spec"].get("resources") or {}).get("maxGPUs")
    return most


def gpu_types_of(plan: Object) -> list[str]:
    """The GPU types that a plan's spec names."""
    return ((plan.get("spec") or {}).get("resources") or {}).get("gpuTypes") or []


def is_observed(plan: Object) -> bool:
    """Whether the status describes the newest spec."""
    return observed_generation(plan.get("status") or {}) >= generation_of(plan)


def observed_generation(status: Object) -> int:
    """The generation of the spec that a status describes; 0: none."""
    return int(status.get("observedGeneration", 0))


def started_at(status: Object) -> dt.datetime | None:
    """When a plan started to train, from which its activeDeadline counts."""
    return parse_time(status.get("startedAt"))
