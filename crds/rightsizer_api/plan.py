"""TrainingPlan, the only kind."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, Strict

from rightsizer_api.base import Model, Rule
from rightsizer_api.quantities import Duration, Name
from rightsizer_api.spec.launch import Launch
from rightsizer_api.spec.model import ModelSpec
from rightsizer_api.spec.resources import Budget, Deadline, Elasticity, ElasticityMode, LayoutPins, Resources
from rightsizer_api.spec.workload import WorkloadSpec
from rightsizer_api.status import Status
from rightsizer_engine.search.types import Objective

GROUP = "rightsizer.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingPlan"

LONGEST_NAME = 40
"""A pod is <plan>-a<attempt>-<index>-<5 letters>, at most 63: room for attempt 9999 of 16384 pods."""


class Metadata(Model):
    """The object metadata that rightsizer reads; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[
        str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = Field(
        description="The plan's name: lower-case letters, digits and dashes, at most 40.", examples=["demo"]
    )
    namespace: Name | None = Field(None, description="Kubernetes: the namespace.", examples=["nlp"])
    labels: dict[str, str] | None = Field(None, description="Labels.", examples=[{"team": "nlp"}])
    annotations: dict[str, str] | None = Field(None, description="Annotations.", examples=[{"note": "trial"}])
    uid: str | None = Field(None, description="Kubernetes: the object's UID.", examples=["5f0c..."])
    generation: int | None = Field(None, description="Kubernetes: the spec's generation.", examples=[1])


class Spec(Model):
    """Model, workload, deadline and hardware."""

    model: ModelSpec = Field(description="The model to train.")
    workload: WorkloadSpec = Field(description="Tokens and training settings.")
    deadline: Deadline | None = Field(
        None, description="The deadline. Default: none, and the fewest GPUs that fit."
    )
    budget: Budget | None = Field(None, description="The cost limit.")
    objective: Annotated[Objective, Strict(False)] = Field(
        Objective.GPUS,
        description="What is minimised within the limits: gpus (without a deadline: the fewest that fit, at"
        " up to half as much again as the lowest cost), cost, or time.",
        examples=["cost"],
    )
    resources: Resources = Field(
        default_factory=Resources.model_construct, description="The hardware that may be used."
    )
    layout: LayoutPins | None = Field(None, description="Fixed degrees of parallelism.")
    launch: Launch = Field(
        default_factory=Launch.model_construct,
        description="The command to start. Without one, the plan is sized but cannot run.",
    )
    elasticity: Elasticity = Field(
        default_factory=Elasticity.model_construct, description="Resizing while the plan runs."
    )
    suspend: bool = Field(False, description="Kubernetes: true saves and stops the job; false resumes it.")
    active_deadline: Duration | None = Field(
        None,
        description="Kubernetes: the longest time from the start of training to its end, over all attempts."
        " Then the workers save and stop, and the plan is Failed (DeadlineExceeded). A suspension resets it."
        " Slurm: bounds the job's time limit, at which the workers save and the job ends, not requeued.",
        examples=["96h"],
    )
    ttl_after_finished: Duration | None = Field(
        None,
        description="Kubernetes: a finished plan is deleted after this time, with its Jobs and their logs."
        " Default: never.",
        examples=["14d"],
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="elasticity.maxGPUs",
            remedy="elasticity.maxGPUs cannot exceed resources.maxGPUs",
            cel="!has(self.elasticity) || !has(self.elasticity.maxGPUs) || !has(self.resources)"
            " || !has(self.resources.maxGPUs) || self.elasticity.maxGPUs <= self.resources.maxGPUs",
            holds=lambda s: (
                s.elasticity.max_gpus is None
                or s.resources.max_gpus is None
                or s.elasticity.max_gpus <= s.resources.max_gpus
            ),
        ),
    )

    @property
    def resize_mode(self) -> ElasticityMode:
        """The mode of resizing: as stated; Off for a script that could not resume at another size."""
        return self.elasticity.mode if not self.launch.never_resized else ElasticityMode.OFF


class TrainingPlan(Model):
    """A training job with a deadline; rightsizer finds the fewest GPUs and the layout that meet it."""

    api_version: Literal["rightsizer.dev/v1alpha1"] = Field(
        "rightsizer.dev/v1alpha1", description="The API version.", examples=[API_VERSION]
    )
    kind: Literal["TrainingPlan"] = Field("TrainingPlan", description="The object's kind.", examples=[KIND])
    metadata: Metadata = Field(description="The plan's name and labels.")
    spec: Spec = Field(description="Model, workload, deadline and hardware.")
    status: Status | None = Field(None, description="Plan, attempt and measurements.")
