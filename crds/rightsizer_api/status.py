"""status: plan, attempt and measurements; written by the operator or by `rightsizer run`."""

import enum
from typing import Annotated

from pydantic import Field, Strict
from pydantic.config import JsonDict

from rightsizer_api.base import Model
from rightsizer_api.quantities import Moment
from rightsizer_api.report import LayoutReport, PlanReport, Seconds

Text = Annotated[str, Field(max_length=1024)]
Word = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
]
Generation = Annotated[int, Field(ge=0)]
Gpus = Annotated[int, Field(ge=0, le=65_536)]
_WHOLE: JsonDict = {"x-kubernetes-map-type": "atomic"}
"""Written as a whole by one writer: the API server then tracks no per-field owners."""


class ConditionStatus(enum.StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """A Kubernetes condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)] = Field(
        description="Ready (its reason is the plan's state), Reconciling, Stalled, Complete and others."
    )
    status: Annotated[ConditionStatus, Strict(False)] = Field(description="True, False or Unknown.")
    reason: Word = Field(description="Reason in CamelCase.")
    message: Annotated[str, Field(max_length=32_768)] = Field("", description="Explanation for users.")
    last_transition_time: Moment = Field(description="When the status last changed.")
    observed_generation: Generation = Field(
        0, description="Generation of the spec that this condition describes."
    )


class Attempt(Model):
    """One attempt of the job; a changed layout starts a new attempt."""

    number: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="Number of the attempt, from 1.")
    gpus: Gpus = Field(description="GPUs at the start.")
    layout: LayoutReport | None = Field(None, description="Layout of the attempt.")
    job_name: Annotated[str, Field(max_length=253)] | None = Field(
        None, description="Name of the Job or process group."
    )
    started_at: Moment | None = Field(None, description="Start time.")
    trained_at: Moment | None = Field(None, description="When its first training step was seen.")


class Observed(Model):
    """Measurements of the current attempt."""

    gpus: Gpus | None = Field(None, description="GPUs training now.")
    step: Annotated[int, Field(ge=0)] | None = Field(None, description="Completed optimizer steps.")
    tokens: Seconds | None = Field(None, description="Tokens trained so far.")
    progress: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Fraction of the tokens trained."
    )
    tokens_per_second: Seconds | None = Field(None, description="Measured throughput.")
    step_seconds: Seconds | None = Field(None, description="Measured step time.")
    measured_over_predicted: Seconds | None = Field(None, description="Measured / predicted step time.")
    memory_gib: Seconds | None = Field(None, description="Measured peak memory of the fullest GPU, GiB.")
    loss: float | None = Field(None, description="The last training loss.")
    restarts: Annotated[int, Field(ge=0)] = Field(0, description="Worker restarts so far.")
    lost_steps: Annotated[int, Field(ge=0)] = Field(0, description="Steps repeated after failures.")
    last_checkpoint_time: Moment | None = Field(None, description="Time of the last checkpoint.")
    last_checkpoint_step: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Step of the last checkpoint."
    )
    updated_at: Moment | None = Field(None, description="Time of the measurement.")


class Recommendation(Model):
    """The recommended change."""

    action: Annotated[str, Field(pattern=r"^(Keep|Grow|Shrink|Relayout|Flag)$", max_length=16)] = Field(
        description="Keep, Grow, Shrink, Relayout or Flag."
    )
    gpus: Gpus | None = Field(None, description="GPUs after the change.")
    layout: LayoutReport | None = Field(None, description="Layout after the change.")
    reason: Text = Field(description="Reason for the change.")
    evidence: Annotated[tuple[Text, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="Measurements behind the recommendation."
    )
    price_gpu_hours: Seconds | None = Field(None, description="Cost of the change, in GPU-hours.")
    saves_gpu_hours: float | None = Field(None, description="Savings until the end of the run, in GPU-hours.")
    at: Moment | None = Field(None, description="Time of the recommendation.")


class Resize(Model):
    """An applied change of size or layout."""

    at: Moment = Field(description="Time of the change.")
    from_gpus: Gpus = Field(description="GPUs before.")
    to_gpus: Gpus = Field(description="GPUs after.")
    from_layout: Text | None = Field(None, description="Layout before, abbreviated.")
    to_layout: Text | None = Field(None, description="Layout after, abbreviated.")
    reason: Text = Field(description="Reason for the change.")
    cause: Annotated[str, Field(pattern=r"^(Plan|Measured|Failure)$", max_length=16)] | None = Field(
        None,
        description="Plan: changed spec; Measured: throughput; Failure: rollback of a failed resize.",
    )
    price_gpu_hours: Seconds | None = Field(None, description="Cost of the change, in GPU-hours.")
    trained_at: Moment | None = Field(
        None, description="First training step at this size; a failure before it rolls the resize back."
    )


class Failure(Model):
    """A failure that ended worker pods of the current attempt."""

    at: Moment = Field(description="When the first pod failed.")
    pod: Annotated[str, Field(max_length=253)] = Field(description="The pod that failed first.")
    exit_code: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None, description="Exit code of its container; above 128: 128 plus the signal."
    )
    message: Text = Field("", description="The reason, the exit code or signal, the worker's last lines.")
    step: Annotated[int, Field(ge=0)] = Field(0, description="The furthest step known at that time.")
    trained: bool = Field(False, description="Whether training advanced since the failure before.")


class Sample(Model):
    """The position of the present run at one moment, as its workers' metrics stated it."""

    unix_seconds: Seconds = Field(description="When, in Unix time.")
    step: Annotated[int, Field(ge=0)] = Field(description="Optimizer steps done.")
    tokens: Seconds = Field(description="Tokens trained.")
    workers: Gpus | None = Field(None, description="Workers in the world.")
    attempt: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="The attempt.")
    restarts: Annotated[int, Field(ge=0)] = Field(description="Worker restarts within the attempt.")
    phase: Annotated[str, Field(max_length=16)] = Field(description="What the training did.")
    covers_seconds: Seconds = Field(description="Time before this moment in which the operator measured.")
    saving_seconds: Seconds | None = Field(None, description="Time spent in checkpoints so far.")
    data_wait_seconds: Seconds | None = Field(None, description="Time spent waiting for data so far.")


class Status(Model):
    """Plan, attempt and measurements of a TrainingPlan."""

    observed_generation: Annotated[int, Field(ge=-1)] = Field(
        0, description="Generation of the spec that this status describes; -1 before the operator's first."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), Strict(False)] = Field(
        (),
        description="Conditions, at most one of each type.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    started_at: Moment | None = Field(
        None, description="Start of training, or its start after a suspension; activeDeadline counts from it."
    )
    deadline: Moment | None = Field(None, description="The deadline as a point in time.")
    eta: Moment | None = Field(
        None,
        description="Expected end, from the measured throughput once there is one; it moves with the clock"
        " while the plan does not train.",
    )
    sizing: PlanReport | None = Field(
        None, description="The sized plan and its reasons.", json_schema_extra=_WHOLE
    )
    attempt: Attempt | None = Field(None, description="The current attempt.", json_schema_extra=_WHOLE)
    observed: Observed | None = Field(
        None, description="Measurements of the current attempt.", json_schema_extra=_WHOLE
    )
    samples: Annotated[tuple[Sample, ...], Field(max_length=48), Strict(False)] = Field(
        (),
        description="Measurements that a new operator continues from.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    recommendation: Recommendation | None = Field(
        None, description="The recommended change.", json_schema_extra=_WHOLE
    )
    resizes: Annotated[tuple[Resize, ...], Field(max_length=50), Strict(False)] = Field(
        (), description="The latest changes of size or layout, oldest first."
    )
    failures: Annotated[tuple[Failure, ...], Field(max_length=50), Strict(False)] = Field(
        (),
        description="The latest failures of the attempt's pods, oldest first: its restart budget's.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    selector: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="Label selector of the workers, for the scale subresource."
    )


class PlanName(Model):
    """Which TrainingPlan."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")


class PlanStatus(Model):
    """A TrainingPlan in the cluster, as `kubectl rightsizer status --json` prints it."""

    metadata: PlanName = Field(description="Which plan.")
    status: Status = Field(description="What the operator says; empty: a new plan.")
