"""status: what rightsizer found, did and saw; written by the operator, or by `rightsizer run`."""

import enum
from typing import Annotated

from pydantic import Field, Strict
from pydantic.config import JsonDict

from rightsizer_api.base import Model
from rightsizer_api.quantities import Moment
from rightsizer_api.report import LayoutReport, PlanReport, Seconds

__all__ = ["Attempt", "Condition", "ConditionStatus", "Observed", "Recommendation", "Resize", "Status"]

Text = Annotated[str, Field(max_length=1024)]
Word = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
]
Generation = Annotated[int, Field(ge=0)]
Gpus = Annotated[int, Field(ge=0, le=65_536)]
_WHOLE: JsonDict = {"x-kubernetes-map-type": "atomic"}
"""One writer, as a whole: the API server then keeps no list of who wrote which field in it."""


class ConditionStatus(enum.StrEnum):
    """Whether a condition holds; Unknown is an honest answer."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Model):
    """One condition, as Kubernetes writes them."""

    type: Annotated[str, Field(min_length=1, max_length=316)] = Field(
        description="Ready (its reason is the state), Sized, Running, Complete, Failed and others."
    )
    status: Annotated[ConditionStatus, Strict(False)] = Field(description="Whether it holds.")
    reason: Word = Field(description="One word why.")
    message: Annotated[str, Field(max_length=32_768)] = Field("", description="A sentence for people.")
    last_transition_time: Moment = Field(description="When the status last changed.")
    observed_generation: Generation = Field(0, description="The generation of the spec it is about.")


class Attempt(Model):
    """One incarnation of the job; a changed layout is a new attempt."""

    number: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="Counts from 1.")
    gpus: Gpus = Field(description="GPUs it was started with.")
    layout: LayoutReport | None = Field(None, description="Its layout.")
    job_name: Annotated[str, Field(max_length=253)] | None = Field(
        None, description="The Job or process group."
    )
    started_at: Moment | None = Field(None, description="When it was started.")


class Observed(Model):
    """What was measured."""

    gpus: Gpus | None = Field(None, description="GPUs that train now.")
    step: Annotated[int, Field(ge=0)] | None = Field(None, description="Optimizer steps done.")
    tokens: Seconds | None = Field(None, description="Tokens trained on.")
    progress: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Fraction of the tokens done."
    )
    tokens_per_second: Seconds | None = Field(None, description="Measured throughput.")
    step_seconds: Seconds | None = Field(None, description="Measured time of a step.")
    measured_over_predicted: Seconds | None = Field(None, description="Measured over predicted step time.")
    memory_gib: Seconds | None = Field(None, description="Measured peak memory of the fullest GPU, GiB.")
    loss: float | None = Field(None, description="The last training loss.")
    restarts: Annotated[int, Field(ge=0)] = Field(0, description="Restarts of workers so far.")
    lost_steps: Annotated[int, Field(ge=0)] = Field(0, description="Steps done again after failures.")
    last_checkpoint_time: Moment | None = Field(None, description="When state was last saved.")
    last_checkpoint_step: Annotated[int, Field(ge=0)] | None = Field(
        None, description="The step it was saved at."
    )
    updated_at: Moment | None = Field(None, description="When this was measured.")


class Recommendation(Model):
    """What rightsizer would do, or is about to."""

    action: Annotated[str, Field(pattern=r"^(Keep|Grow|Shrink|Relayout|Flag)$", max_length=16)] = Field(
        description="Keep, Grow, Shrink, Relayout or Flag."
    )
    gpus: Gpus | None = Field(None, description="GPUs it would have then.")
    layout: LayoutReport | None = Field(None, description="Its layout then.")
    reason: Text = Field(description="Why.")
    evidence: Annotated[tuple[Text, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="The measurements it rests on."
    )
    price_gpu_hours: Seconds | None = Field(None, description="What the change costs, in GPU-hours.")
    saves_gpu_hours: float | None = Field(None, description="What it saves to the end, in GPU-hours.")
    at: Moment | None = Field(None, description="When it was made.")


class Resize(Model):
    """A change of size or layout that was carried out."""

    at: Moment = Field(description="When.")
    from_gpus: Gpus = Field(description="GPUs before.")
    to_gpus: Gpus = Field(description="GPUs after.")
    from_layout: Text | None = Field(None, description="Layout before, in short.")
    to_layout: Text | None = Field(None, description="Layout after, in short.")
    reason: Text = Field(description="Why.")
    cause: Annotated[str, Field(pattern=r"^(Plan|Measured|Failure)$", max_length=16)] | None = Field(
        None, description="Plan: it was changed; Measured: the pace asked for it; Failure: a resize failed."
    )
    price_gpu_hours: Seconds | None = Field(None, description="What it cost, in GPU-hours.")
    trained_at: Moment | None = Field(
        None, description="When it was first seen to train so; a failure before that takes it back."
    )


class Status(Model):
    """What rightsizer found, did and saw."""

    observed_generation: Generation = Field(0, description="The generation of the spec this is about.")
    conditions: Annotated[tuple[Condition, ...], Field(max_length=32), Strict(False)] = Field(
        (),
        description="The conditions, one of each type.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    deadline: Moment | None = Field(None, description="The deadline as a moment, whichever way it was given.")
    eta: Moment | None = Field(
        None, description="When it will finish, by the measured pace once there is one."
    )
    sizing: PlanReport | None = Field(
        None, description="The plan, with its reasons.", json_schema_extra=_WHOLE
    )
    attempt: Attempt | None = Field(None, description="The current attempt.", json_schema_extra=_WHOLE)
    observed: Observed | None = Field(None, description="What was measured.", json_schema_extra=_WHOLE)
    recommendation: Recommendation | None = Field(
        None, description="What rightsizer would do now.", json_schema_extra=_WHOLE
    )
    resizes: Annotated[tuple[Resize, ...], Field(max_length=50), Strict(False)] = Field(
        (), description="The last changes of size or layout, oldest first."
    )
    selector: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="The workers' label selector, for the scale subresource."
    )
