"""The input of a reconcile: values parsed from API objects."""

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_api.state import State
from rightsizer_engine.domain.reading import Missing
from rightsizer_engine.resize.types import Decision
from rightsizer_engine.values import immutable
from rightsizer_operator.values.carriers import job_within
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.kueue import KueueWorkload, Queue
from rightsizer_operator.values.metadata import is_being_deleted, owner_uids, version_of
from rightsizer_operator.values.names import (
    CARRIER,
    DEADLINE_EXCEEDED,
    DIGEST,
    ELASTIC,
    END_NOW_S,
    GPU_TYPE,
    GPUS,
    LABEL_PLAN,
    NUDGED,
    PLAN_UID,
)
from rightsizer_operator.values.nodes import NodeRequirements, pod_gpus, pod_slices
from rightsizer_operator.values.pods import Pod
from rightsizer_operator.values.quantities import parse_quantity
from rightsizer_operator.values.requests import Allowance
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.vendors import gpus_in, slices_in

Object = Mapping[str, Any]


class JobCondition(enum.StrEnum):
    """The types of a Job's conditions, in Kubernetes' words."""

    COMPLETE = "Complete"
    SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
    FAILED = "Failed"
    FAILURE_TARGET = "FailureTarget"
    SUSPENDED = "Suspended"


@immutable
class AttemptJob:
    """One attempt's Job. `finished` is COMPLETE, FAILED or None; `reason` and `message` explain it.

    `name` and `kind` are those of its carrier: the Job itself, or an object that another controller expands;
    `carried` is the Job's own name then. `expected`: that controller has not created the Job yet.
    `gpus_per_pod` is the trainer's GPUs, `pod_gpus` those of all containers. `nudged_at` is when an
    annotation last made Kueue reconcile it. `started_at` is when it was last started or resumed; None while
    it is suspended. `ending`: the operator told it to fail.
    """

    name: str
    plan: str
    namespace: str
    attempt: int
    kind: str = "Job"
    carried: str = ""
    expected: bool = False
    uid: str = ""
    owner_uid: str = ""
    parallelism: int = 0
    suspended: bool = False
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    gpus_per_pod: int = 0
    pod_gpus: int = 0
    nodes: NodeRequirements = field(default_factory=NodeRequirements)
    gpu_type: str = ""
    digest: str = ""
    elastic: bool = False
    deleting: bool = False
    finished: State | None = None
    reason: str = ""
    message: str = ""
    finished_at: dt.datetime | None = None
    active_deadline_s: int | None = None
    nudged_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    ending: bool = False
    version: int = 0

    @property
    def job_name(self) -> str:
        """The Job's own name."""
        return self.carried or self.name

    @property
    def is_active(self) -> bool:
        """Whether it holds GPUs or is about to get them."""
        return not self.finished and not self.suspended

    @property
    def exceeded_deadline(self) -> bool:
        """Whether it ran out of the plan's activeDeadline; one that the operator ends has another cause."""
        return self.reason == DEADLINE_EXCEEDED and not self.ending

    @property
    def gpus(self) -> int:
        """GPUs it requests."""
        return self.parallelism * self.gpus_per_pod

    @classmethod
    def of(cls, raw: Object) -> "AttemptJob":
        """Parse a Job that the operator created."""
        metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
        annotations, labels = metadata.get("annotations", {}), metadata.get("labels", {})
        pod, claimed = spec["template"]["spec"], parse_quantity(annotations.get(GPUS, 0))
        kind = annotations.get(GPU_TYPE, "")
        limits = pod["containers"][0].get("resources", {}).get("limits", {})
        end = _end_condition(status)
        owner: Object = next((o for o in metadata.get("ownerReferences", ()) if o.get("controller")), {})
        in_set = owner.get("kind") == "JobSet"  # which has the attempt's name, whoever created it
        name = owner["name"] if in_set else metadata["name"]
        return cls(
            name=name,
            kind=annotations.get(CARRIER, "Job"),
            carried=metadata["name"] if in_set else "",
            plan=labels.get(LABEL_PLAN, ""),
            namespace=metadata["namespace"],
            attempt=parse_quantity(name.rpartition("-a")[2]),
            uid=metadata.get("uid", ""),
            owner_uid=annotations.get(PLAN_UID, "") if in_set else owner.get("uid", ""),
            parallelism=spec.get("parallelism", 1),
            suspended=spec.get("suspend", False),
            ready=status.get("ready", 0),
            succeeded=_succeeded(status),
            failed=status.get("failed", 0),
            terminating=status.get("terminating", 0),
            gpus_per_pod=gpus_in(limits) + sum(slices_in(limits).values()) + claimed,
            pod_gpus=pod_gpus(pod) + pod_slices(pod).total() + claimed,
            nodes=replace(NodeRequirements.of(pod), types=(kind,) if kind else ()),
            gpu_type=kind,
            digest=annotations.get(DIGEST, ""),
            elastic=annotations.get(ELASTIC) == "true",
            nudged_at=parse_time(annotations.get(NUDGED)),
            active_deadline_s=spec.get("activeDeadlineSeconds"),
            started_at=_start_time(status),
            deleting=is_being_deleted(raw),
            finished=end.get("type"),
            reason=end.get("reason", ""),
            message=end.get("message", ""),
            finished_at=parse_time(end.get("lastTransitionTime")),
            ending=spec.get("activeDeadlineSeconds") == END_NOW_S,
            version=version_of(raw),
        )

    @classmethod
    def within(cls, child: Object) -> "AttemptJob | None":
        """The Job that a child of the plan is or will make; None for other children."""
        raw = job_within(child)
        return replace(cls.of(raw), expected=raw is not child) if raw is not None else None


_ENDS = {
    JobCondition.COMPLETE: State.COMPLETE,
    JobCondition.SUCCESS_CRITERIA_MET: State.COMPLETE,
    JobCondition.FAILED: State.FAILED,
    JobCondition.FAILURE_TARGET: State.FAILED,
}
"""What a condition that ends a Job means for the plan."""


def is_completed(job: Object) -> bool:
    """Whether a Job is complete: its GPUs are free."""
    return bool(job.get("status", {}).get("completionTime"))


def _start_time(status: Object) -> dt.datetime | None:
    """When its pods could last start; None while it is suspended, when startTime is of the run before."""
    conditions = status.get("conditions", ())
    suspended = any(c["type"] == JobCondition.SUSPENDED and c["status"] == "True" for c in conditions)
    return None if suspended else parse_time(status.get("startTime"))


def _succeeded(status: Object) -> int:
    """Succeeded pods, including those that the Job controller has not counted yet."""
    return int(status.get("succeeded", 0)) + len(
        status.get("uncountedTerminatedPods", {}).get("succeeded", ())
    )


def _end_condition(status: Object) -> Object:
    """The condition that ends a Job, also while its pods still terminate; empty if it has not ended."""
    for kind, outcome in _ENDS.items():
        for condition in status.get("conditions", ()):
            if condition["type"] == kind and condition["status"] == "True":
                return {**condition, "type": outcome}
    return {}


@immutable
class ChildWarning:
    """The newest Warning Event of a kind about one of the plan's objects."""

    kind: str
    name: str
    reason: str
    message: str


@immutable
class Rendezvous:
    """The ReplicaSet of a rendezvous store; `ready`: its pod listens."""

    name: str
    owner_uids: frozenset[str]
    ready: bool
    version: int

    @classmethod
    def of(cls, raw: Object) -> "Rendezvous":
        """Parse a ReplicaSet."""
        return cls(
            name=raw["metadata"]["name"],
            owner_uids=frozenset(owner_uids(raw)),
            ready=bool(raw.get("status", {}).get("readyReplicas")),
            version=version_of(raw),
        )


@immutable
class ReportedProgress:
    """Progress that rank 0 reports. `tokens` count from the beginning of the training.

    `checkpoint_s` and `data_wait_s` are the seconds that its process has spent on each so far.
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
    """One plan and all state that its reconcile depends on.

    `plan` is the API object. `jobs` are all its Jobs. `pods` are its workers and its rendezvous, read only
    while some are unhealthy; `warnings` are Events about what keeps them from running. `children` names its
    other objects as kind/name. `rendezvous_ready`: its store listens. `quota_gpus` is what the namespace's
    quotas leave to this plan; None without a limit. `allowance` is what it leaves of CPU and memory, read
    while the plan has no Job; None: not read. `queue` is its Kueue queue, `workloads` the Workloads of
    its pending Jobs. `rejection` is why the API server rejected a child at the last try. `decision` is a new
    resize decision, if there is one. `missing_metrics` says why expected GPU metrics are missing,
    `scrape_refusal` why the workers' own metrics were not read.
    `samples` are the newest status.samples.
    `sizing_since` is when a search began that is not over: the deadline counts from there, so that the
    size request stays the same.
    """

    plan: Object
    inventory: Inventory
    now: dt.datetime
    settings: OperatorSettings = field(default_factory=OperatorSettings)
    jobs: tuple[AttemptJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    warnings: tuple[ChildWarning, ...] = ()
    children: frozenset[str] = frozenset()
    rendezvous_ready: bool = True
    quota_gpus: int | None = None
    allowance: Allowance | None = None
    queue: Queue | None = None
    workloads: tuple[KueueWorkload, ...] = ()
    progress: ReportedProgress | None = None
    rejection: str = ""
    decision: Decision | None = None
    missing_metrics: Missing | None = None
    scrape_refusal: str = ""
    sizing_since: dt.datetime | None = None
    samples: tuple[Object, ...] = ()

    @property
    def status(self) -> Object:
        """The plan's current status."""
        status: Object = self.plan.get("status") or {}
        return status
