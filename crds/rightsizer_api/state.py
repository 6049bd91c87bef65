"""The states of a plan, and the types of its conditions. Each word is defined here and nowhere else.

A plan's state is the reason of its condition Ready.
"""

import enum


class _Is(enum.Flag):
    """The classes of a state."""

    NONE = 0
    WAITING = enum.auto()
    CONTENDING = enum.auto()
    TRAINING = enum.auto()
    ENDED = enum.auto()
    WARNING = enum.auto()
    STALLED = enum.auto()
    OBSTACLE = enum.auto()
    GOOD = enum.auto()
    QUIET = enum.auto()


_REFUSED = _Is.WARNING | _Is.STALLED
_BLOCKED = _Is.WARNING | _Is.OBSTACLE


class State(enum.StrEnum):
    """A plan's state, with the sentence that explains it to users."""

    sentence: str
    _traits: _Is

    NEW = "New", "the operator has not observed it yet"
    INVALID = "Invalid", "its spec is wrong", _REFUSED
    NO_PLAN = "NoPlan", "no layout meets its goal", _REFUSED
    DEADLINE_PASSED = "DeadlinePassed", "its deadline has passed before it could start", _REFUSED
    SIZING = (
        "Sizing",
        "the search for its size takes longer than others, or waits for its turn",
        _Is.QUIET,
    )
    SIZING_TOO_LONG = "SizingTooLong", "the search for its size takes too long", _Is.WARNING
    FAULT = "Fault", "it triggers a fault in the operator", _Is.WARNING
    NO_SUCH_GPUS = (
        "NoSuchGPUs",
        "the cluster has none of the GPUs that it may use",
        _Is.WARNING | _Is.WAITING,
    )
    INSUFFICIENT_GPUS = (
        "InsufficientGPUs",
        "it needs more GPUs than the cluster can ever give it",
        _Is.WARNING | _Is.WAITING,
    )
    WAITING_FOR_GPUS = (
        "WaitingForGPUs",
        "it waits for GPUs that other jobs hold",
        _Is.WAITING | _Is.CONTENDING,
    )
    QUEUED = "Queued", "it waits in its queue", _Is.CONTENDING
    REFUSED = "Refused", "the API server rejected one of its objects", _REFUSED
    UNSCHEDULABLE = "Unschedulable", "no node has room for one of its pods", _BLOCKED
    VOLUME_CLAIM = "VolumeClaim", "a volume claim of its pods is missing or not bound", _BLOCKED
    VOLUME_MOUNT = "VolumeMount", "a volume of its pods cannot be mounted", _BLOCKED
    IMAGE_PULL = "ImagePull", "its image cannot be pulled", _BLOCKED
    CONTAINER_ERROR = "ContainerError", "a container of its pods cannot be made", _BLOCKED
    POD_ERROR = "PodError", "the node cannot set up one of its pods", _BLOCKED
    QUOTA_EXCEEDED = "QuotaExceeded", "a quota of its namespace leaves no room for its pods", _BLOCKED
    ADMISSION_DENIED = "AdmissionDenied", "an admission policy rejects its pods", _BLOCKED
    FAILED_CREATE = "FailedCreate", "the API server rejects its pods", _BLOCKED
    FINISHING = "Finishing", "its last workers stop", _Is.GOOD
    SUSPENDED = "Suspended", "it was stopped on request; its checkpoint is saved"
    STARTING = "Starting", "its workers start", _Is.QUIET
    RUNNING = "Running", "it trains", _Is.TRAINING | _Is.GOOD
    RECOVERING = "Recovering", "it lost workers and is getting them back", _Is.TRAINING
    RESIZING = "Resizing", "its size or layout is changing"
    RELAYOUT = "Relayout", "the previous attempt is saving and stopping"
    COMPLETE = "Complete", "trained on all tokens", _Is.ENDED | _Is.GOOD
    FAILED = "Failed", "it used up its restarts or cannot start", _Is.ENDED | _REFUSED

    def __new__(cls, word: str, sentence: str, traits: _Is = _Is.NONE) -> "State":
        """A word of the status with its sentence and its traits."""
        state = str.__new__(cls, word)
        state._value_ = word
        state.sentence, state._traits = sentence, traits
        return state

    @classmethod
    def of(cls, reason: str) -> "State | None":
        """The state that a reason of Ready names; NEW without a reason; None: another version's word."""
        if not reason:
            return cls.NEW
        return next((state for state in cls if state == reason), None)

    @property
    def waits(self) -> bool:
        """Whether freed GPUs or new nodes may let it start."""
        return _Is.WAITING in self._traits

    @property
    def contends(self) -> bool:
        """Whether all that it lacks is GPUs that others hold."""
        return _Is.CONTENDING in self._traits

    @property
    def trains(self) -> bool:
        """Whether its workers may serve metrics of a training."""
        return _Is.TRAINING in self._traits

    @property
    def ended(self) -> bool:
        """True if the plan keeps this state until its spec changes."""
        return _Is.ENDED in self._traits

    @property
    def warns(self) -> bool:
        """Whether entering it is a Warning Event."""
        return _Is.WARNING in self._traits

    @property
    def stalls(self) -> bool:
        """Whether it makes no progress until somebody changes it or the cluster's policies."""
        return _Is.STALLED in self._traits

    @property
    def is_obstacle(self) -> bool:
        """Whether something in the cluster keeps its pods from running."""
        return _Is.OBSTACLE in self._traits

    @property
    def is_good(self) -> bool:
        """Whether it trains as it should, or has trained."""
        return _Is.GOOD in self._traits

    @property
    def is_quiet(self) -> bool:
        """Whether entering it is no Event: each launch passes through it."""
        return _Is.QUIET in self._traits


class ConditionType(enum.StrEnum):
    """The types of a plan's conditions, in their order in the status."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    ACCEPTED = "Accepted"
    SIZED = "Sized"
    ADMITTED = "Admitted"
    RUNNING = "Running"
    RESIZING = "Resizing"
    DEADLINE_AT_RISK = "DeadlineAtRisk"
    OVER_PROVISIONED = "OverProvisioned"
    IDLE = "Idle"
    METRICS_AVAILABLE = "MetricsAvailable"
    COMPLETE = "Complete"
    FAILED = "Failed"


class RunningReason(enum.StrEnum):
    """Reasons of the condition Running that are no state: how many workers are there."""

    ALL_WORKERS = "AllWorkers"
    SOME_WORKERS = "SomeWorkers"
    NO_WORKERS = "NoWorkers"
    NO_RENDEZVOUS = "NoRendezvous"
    WAITING_FOR_WORKERS = "WaitingForWorkers"
    NOT_ADMITTED = "NotAdmitted"
