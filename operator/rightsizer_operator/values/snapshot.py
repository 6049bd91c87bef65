"""What the operator knows of the world when it decides: values, parsed from the API's objects."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from rightsizer.resize.types import Decision
from rightsizer.values import immutable
from rightsizer_api.plan import KIND
from rightsizer_api.quantities import parse_time
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.kueue import Queue, Workload
from rightsizer_operator.values.names import (
    DIGEST,
    ELASTIC,
    GPU_RESOURCE,
    GPU_TYPE,
    LABEL_ATTEMPT,
    LABEL_PLAN,
    NUDGED,
    QUEUE_ELASTIC,
)
from rightsizer_operator.values.quantities import parse_quantity
from rightsizer_operator.values.settings import Settings

__all__ = ["AttemptJob", "Key", "Pod", "Progress", "Snapshot", "owner_uids", "plan_key"]

Key = tuple[str, str]
"""Namespace and name of a plan."""
Object = Mapping[str, Any]


def owner_uids(raw: Object) -> set[str]:
    """The uids of an object's owners."""
    return {owner["uid"] for owner in raw["metadata"].get("ownerReferences", ())}


def plan_key(raw: Object) -> Key:
    """The plan that an object of ours belongs to: its owner's name, whatever became of its label."""
    metadata = raw["metadata"]
    owners = (o["name"] for o in metadata.get("ownerReferences", ()) if o["kind"] == KIND)
    return metadata["namespace"], next(owners, metadata.get("labels", {}).get(LABEL_PLAN, ""))


@immutable
class AttemptJob:
    """One attempt's Job. `finished` is Complete, Failed or empty; `reason` and `message` say why.

    `nudged` is when its queue was last made to look at it again.
    """

    name: str
    plan: str
    namespace: str
    attempt: int
    uid: str = ""
    owner_uid: str = ""
    parallelism: int = 0
    suspended: bool = False
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    gpus_per_pod: int = 0
    gpu_type: str = ""
    digest: str = ""
    elastic: bool = False
    deleting: bool = False
    finished: str = ""
    reason: str = ""
    message: str = ""
    finished_at: dt.datetime | None = None
    nudged: dt.datetime | None = None
    version: int = 0

    @property
    def is_active(self) -> bool:
        """Whether it holds GPUs or is about to."""
        return not self.finished and not self.suspended

    @property
    def gpus(self) -> int:
        """GPUs it asks for."""
        return self.parallelism * self.gpus_per_pod

    @classmethod
    def of(cls, raw: Object) -> "AttemptJob":
        """The Job of an API object of ours."""
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
        notes, labels = metadata.get("annotations", {}), metadata.get("labels", {})
        limits = spec["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
        ending = _ending(status)
        owner = next((o["uid"] for o in metadata.get("ownerReferences", ()) if o.get("controller")), "")
        return cls(
            name=metadata["name"],
            plan=labels.get(LABEL_PLAN, ""),
            namespace=metadata["namespace"],
            attempt=parse_quantity(metadata["name"].rpartition("-a")[2]),
            uid=metadata.get("uid", ""),
            owner_uid=owner,
            parallelism=spec.get("parallelism", 1),
            suspended=spec.get("suspend", False),
            ready=status.get("ready", 0),
            succeeded=_succeeded(status),
            failed=status.get("failed", 0),
            terminating=status.get("terminating", 0),
            gpus_per_pod=parse_quantity(limits.get(GPU_RESOURCE, 0)),
            gpu_type=notes.get(GPU_TYPE, ""),
            digest=notes.get(DIGEST, ""),
            elastic=notes.get(ELASTIC) == "true",
            nudged=parse_time(notes.get(NUDGED)),
            deleting="deletionTimestamp" in metadata,
            finished=ending.get("type", ""),
            reason=ending.get("reason", ""),
            message=ending.get("message", ""),
            finished_at=parse_time(ending.get("lastTransitionTime")),
            version=int(metadata.get("resourceVersion", 0)),
        )


def _succeeded(status: Object) -> int:
    """Pods that have succeeded, those that the controller has yet to count too."""
    return int(status.get("succeeded", 0)) + len(
        status.get("uncountedTerminatedPods", {}).get("succeeded", ())
    )


def _ending(status: Object) -> Object:
    """The condition that ends a Job; an ending that has only begun counts (its pods are on their way out)."""
    names = {"Complete": "Complete", "SuccessCriteriaMet": "Complete", "Failed": "Failed"}
    names["FailureTarget"] = "Failed"
    for kind, means in names.items():
        for condition in status.get("conditions", ()):
            if condition["type"] == kind and condition["status"] == "True":
                return {**condition, "type": means}
    return {}


@immutable
class Pod:
    """One worker pod. `deletes_by` is when its grace ends, once asked to go; `message` its last words.

    `gated`: its queue has not let it be scheduled.
    """

    name: str
    uid: str = ""
    attempt: int = 0
    node: str = ""
    phase: str = "Pending"
    gated: bool = False
    created: dt.datetime | None = None
    address: str = ""
    deletes_by: dt.datetime | None = None
    exit_code: int | None = None
    message: str = ""
    finished_at: dt.datetime | None = None

    @classmethod
    def of(cls, raw: Object) -> "Pod":
        """The pod of an API object of ours."""
        metadata, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
        ended: Object = {}
        for container in status.get("containerStatuses", ()):
            ended = container.get("state", {}).get("terminated") or ended
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            attempt=parse_quantity(metadata.get("labels", {}).get(LABEL_ATTEMPT, 0)),
            node=spec.get("nodeName", ""),
            phase=status.get("phase", "Pending"),
            gated=any(gate["name"] == QUEUE_ELASTIC for gate in spec.get("schedulingGates", ())),
            created=parse_time(metadata.get("creationTimestamp")),
            address=status.get("podIP", ""),
            deletes_by=parse_time(metadata.get("deletionTimestamp")),
            exit_code=ended.get("exitCode"),
            message=ended.get("message", "").strip(),
            finished_at=parse_time(ended.get("finishedAt")),
        )


@immutable
class Progress:
    """What a run says of itself. `tokens` count from the beginning of the training.

    `checkpoint_s` and `data_wait_s` are seconds that rank 0's process has spent in either so far.
    """

    tokens: float
    tokens_per_s: float
    step: int
    restarts: int = 0
    loss: float | None = None
    checkpoint_at: dt.datetime | None = None
    workers: int | None = None
    phase: str = ""
    checkpoint_s: float | None = None
    data_wait_s: float | None = None


@immutable
class Snapshot:
    """One plan and everything around it that a decision may depend on.

    `plan` is the object as the API gave it. `jobs` are all of this plan. `pods` are its workers, read only
    while something is wrong with them. `supports` names the Services, ReplicaSets and ConfigMaps there are.
    `quota_gpus` is what the namespace's quotas leave to this plan; None: no limit. `queue` is its queue,
    where Kueue serves one, and `workloads` what Kueue holds for its Jobs, read while they wait. `refusal` is
    why the API server did not take a child, the last time that it was tried. `decision` is a new judgement of
    its size, if there is one; `uncounted` says why the counters of its GPUs are not known, though they
    should be.
    """

    plan: Object
    inventory: Inventory
    now: dt.datetime
    settings: Settings = field(default_factory=Settings)
    jobs: tuple[AttemptJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    supports: frozenset[str] = frozenset()
    quota_gpus: int | None = None
    queue: Queue | None = None
    workloads: tuple[Workload, ...] = ()
    progress: Progress | None = None
    refusal: str = ""
    decision: Decision | None = None
    uncounted: str = ""

    @property
    def status(self) -> Object:
        """The plan's status as it stands."""
        found: Object = self.plan.get("status") or {}
        return found
