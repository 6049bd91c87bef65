"""spec.deadline, budget, resources, layout and elasticity: by when, for how much, on what."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field, Strict

from rightsizer_api.base import Model, Rule
from rightsizer_api.quantities import Duration, Moment, Name, Usd

__all__ = ["Budget", "Deadline", "Elasticity", "ElasticityMode", "Interconnect", "LayoutPins", "Resources"]

Gpus = Annotated[int, Field(ge=1, le=65_536)]
Degree = Annotated[int, Field(ge=1, le=65_536)]


class Deadline(Model):
    """By when: exactly one of finishBy and finishWithin, held with the probability `confidence`."""

    finish_by: Moment | None = Field(
        None,
        description="The moment by which training must be done, RFC 3339.",
        examples=["2026-09-30T18:00:00Z"],
    )
    finish_within: Duration | None = Field(
        None, description="The same, counted from when the plan is made.", examples=["72h"]
    )
    confidence: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        0.9, description="The probability with which the deadline must hold.", examples=[0.9]
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="",
            remedy="give exactly one of finishBy and finishWithin",
            cel="has(self.finishBy) != has(self.finishWithin)",
            holds=lambda d: (d.finish_by is None) != (d.finish_within is None),
        ),
    )


class Budget(Model):
    """For how much."""

    max_usd: Usd | None = Field(
        None, description="The most the whole run may be expected to cost, in US dollars.", examples=["60k"]
    )
    usd_per_gpu_hour: Usd | None = Field(
        None,
        description="What a GPU-hour costs you. Default: the catalog's dated list price.",
        examples=["$2.50"],
    )


class Interconnect(Model):
    """What the network gives, where the catalog's typical node is not yours."""

    inter_node_gbps: Annotated[float, Field(ge=0.01, le=100_000)] | None = Field(
        None, description="Gigabytes per second between nodes, per GPU and direction.", examples=[50]
    )


class Resources(Model):
    """What may be used."""

    gpu_types: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16), Strict(False)] | None = Field(
        None,
        description="GPU types to choose from (`rightsizer gpus` lists them). Default: those of this machine"
        " or cluster.",
        examples=[["H100-SXM5-80GB"]],
    )
    gpus: Gpus | None = Field(
        None,
        description="An exact number of GPUs, which replaces the search; what `kubectl scale` sets.",
        examples=[64],
    )
    min_gpus: Gpus = Field(1, description="The fewest GPUs to consider.", examples=[8])
    max_gpus: Gpus | None = Field(
        None, description="The most GPUs to consider. Default: no limit but the cluster's.", examples=[256]
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="GPUs of a node. Default: the GPU type's usual node.", examples=[8]
    )
    node_shape: Name | None = Field(
        None,
        description="A cloud's node type, which fixes the network and the price.",
        examples=["p5.48xlarge"],
    )
    interconnect: Interconnect | None = Field(None, description="The network, where it is not the usual one.")
    spare_nodes: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        None, description="Nodes that wait to replace failed ones. Default: the engine chooses.", examples=[1]
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="minGPUs",
            remedy="minGPUs cannot exceed maxGPUs",
            cel="!has(self.maxGPUs) || self.minGPUs <= self.maxGPUs",
            holds=lambda r: r.max_gpus is None or r.min_gpus <= r.max_gpus,
        ),
        Rule(
            field="gpus",
            remedy="gpus must lie between minGPUs and maxGPUs",
            cel="!has(self.gpus) || (self.gpus >= self.minGPUs"
            " && (!has(self.maxGPUs) || self.gpus <= self.maxGPUs))",
            holds=lambda r: (
                r.gpus is None or r.min_gpus <= r.gpus <= (r.gpus if r.max_gpus is None else r.max_gpus)
            ),
        ),
    )


class LayoutPins(Model):
    """Degrees of parallelism that the search must keep, for scripts that know only one way."""

    dp: Degree | None = Field(None, description="Data parallel ranks.", examples=[8])
    tp: Degree | None = Field(None, description="Tensor parallel ranks.", examples=[1])
    pp: Degree | None = Field(None, description="Pipeline stages.", examples=[1])
    vpp: Degree | None = Field(None, description="Model chunks of a stage (interleaving).", examples=[1])
    cp: Degree | None = Field(None, description="Context parallel ranks.", examples=[1])
    ep: Degree | None = Field(None, description="Expert parallel ranks.", examples=[1])
    micro_batch: Degree | None = Field(None, description="Sequences of a forward pass.", examples=[1])


class ElasticityMode(enum.StrEnum):
    """What may be done to a running plan that is too big or too small."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class Elasticity(Model):
    """What may be done while it runs: nothing, a recommendation, or a resize."""

    mode: Annotated[ElasticityMode, Strict(False)] = Field(
        ElasticityMode.RECOMMEND,
        description='Off: nothing; Recommend: say it; Auto: do it. Write "Off" in quotes: kubectl takes'
        " a bare Off for false.",
        examples=["Recommend"],
    )
    min_gpus: Gpus | None = Field(
        None, description="Never resize below this. Default: resources.minGPUs.", examples=[8]
    )
    max_gpus: Gpus | None = Field(
        None, description="Never resize above this. Default: resources.maxGPUs.", examples=[128]
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="minGPUs",
            remedy="minGPUs cannot exceed maxGPUs",
            cel="!has(self.minGPUs) || !has(self.maxGPUs) || self.minGPUs <= self.maxGPUs",
            holds=lambda e: e.min_gpus is None or e.max_gpus is None or e.min_gpus <= e.max_gpus,
        ),
    )
