"""TrainingPlan, the one kind of document."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from rightsizer_api.base import Model, Rule
from rightsizer_api.launch import Launch
from rightsizer_api.model import ModelSpec
from rightsizer_api.quantities import Name
from rightsizer_api.resources import Budget, Deadline, Elasticity, LayoutPins, Resources
from rightsizer_api.status import Status
from rightsizer_api.workload import WorkloadSpec

__all__ = ["API_VERSION", "GROUP", "KIND", "LONGEST_NAME", "VERSION", "Metadata", "Spec", "TrainingPlan"]

GROUP = "rightsizer.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingPlan"

LONGEST_NAME = 40
"""A pod is <plan>-a<attempt>-<index>-<5 letters>, at most 63: room for attempt 9999 of 16384 pods."""


class Metadata(Model):
    """The part of Kubernetes' object metadata that matters here; the rest is ignored."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[
        str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    ] = Field(
        description="The plan's name: lower-case letters, digits and dashes, at most 40.", examples=["demo"]
    )
    namespace: Name | None = Field(None, description="Kubernetes: the namespace.", examples=["nlp"])
    labels: dict[str, str] | None = Field(None, description="Labels.", examples=[{"team": "nlp"}])
    annotations: dict[str, str] | None = Field(None, description="Annotations.", examples=[{"note": "trial"}])
    uid: str | None = Field(None, description="Kubernetes: the object's identity.", examples=["5f0c..."])
    generation: int | None = Field(None, description="Kubernetes: counts changes of the spec.", examples=[1])


class Spec(Model):
    """What must be trained, by when, on what."""

    model: ModelSpec = Field(description="What is trained.")
    workload: WorkloadSpec = Field(description="How much, and how.")
    deadline: Deadline | None = Field(None, description="By when. Without it: the cheapest reasonable plan.")
    budget: Budget | None = Field(None, description="For how much.")
    resources: Resources = Field(default_factory=Resources.model_construct, description="What may be used.")
    layout: LayoutPins | None = Field(None, description="Degrees of parallelism that are given.")
    launch: Launch = Field(
        default_factory=Launch.model_construct,
        description="What is started. Without a command a plan can be sized, not run.",
    )
    elasticity: Elasticity = Field(
        default_factory=Elasticity.model_construct, description="What may be done while it runs."
    )
    suspend: bool = Field(
        False, description="Kubernetes: a running job saves and stops, and goes on when this is false again."
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


class TrainingPlan(Model):
    """A training job: what must be trained and by when; rightsizer finds how few GPUs do it, and how."""

    api_version: Literal["rightsizer.dev/v1alpha1"] = Field(
        "rightsizer.dev/v1alpha1", description="The version of this API.", examples=[API_VERSION]
    )
    kind: Literal["TrainingPlan"] = Field(
        "TrainingPlan", description="The kind of document.", examples=[KIND]
    )
    metadata: Metadata = Field(description="The plan's name and labels.")
    spec: Spec = Field(description="What must be trained, by when, on what.")
    status: Status | None = Field(None, description="What rightsizer found, did and saw.")
