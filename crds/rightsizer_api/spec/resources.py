"""spec.deadline, budget, resources, layout and elasticity: time, money and hardware."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field, Strict

from rightsizer_api.base import Model, Rule
from rightsizer_api.quantities import Duration, Link, Moment, Name, Rate, Usd

Gpus = Annotated[int, Field(ge=1, le=65_536)]
Degree = Annotated[int, Field(ge=1, le=65_536)]


class Deadline(Model):
    """The deadline: exactly one of finishBy and finishWithin, met with probability `confidence`."""

    finish_by: Moment | None = Field(
        None,
        description="Time by which training must end, RFC 3339.",
        examples=["2026-09-30T18:00:00Z"],
    )
    finish_within: Duration | None = Field(
        None, description="Time allowed for training, counted from the plan's creation.", examples=["72h"]
    )
    confidence: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        0.9, description="Required probability of meeting the deadline.", examples=[0.9]
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
    """The cost limit."""

    max_usd: Usd | None = Field(
        None, description="Maximum expected cost of the whole run, in US dollars.", examples=["60k"]
    )
    usd_per_gpu_hour: Usd | None = Field(
        None,
        description="Price of one GPU-hour. Default: the catalog's dated list price.",
        examples=["$2.50"],
    )


class Interconnect(Model):
    """Links between nodes and inside a node, if they differ from the catalog's typical node."""

    inter_node_gbps: Rate | None = Field(
        None,
        description="Rate between nodes, per GPU and direction: 400Gbps, 50GB/s, or a whole number of GB/s."
        " At most 200GB/s. A card by name: NDR200 (one for each GPU), 4x NDR200 (four for each node).",
        examples=["400Gbps"],
    )
    intra_node_gbps: Link | None = Field(
        None,
        description="Rate between the GPUs of a node, per GPU and direction, at line rate: 450GB/s, 16"
        " (GB/s) or PCIe4 x8. Less than half of the GPU's NVLink rate means that the node has no NVLink.",
        examples=["PCIe4 x8"],
    )


class Resources(Model):
    """The hardware that may be used."""

    gpu_types: Annotated[tuple[Name, ...], Field(min_length=1, max_length=16), Strict(False)] | None = Field(
        None,
        description="Allowed GPU types (`rightsizer gpus` lists them). Default: the types on this machine or"
        " cluster.",
        examples=[["H100-SXM5-80GB"]],
    )
    gpus: Gpus | None = Field(
        None,
        description="Exact number of GPUs; replaces the search. `kubectl scale` sets it.",
        examples=[64],
    )
    min_gpus: Gpus = Field(1, description="Minimum number of GPUs.", examples=[8])
    max_gpus: Gpus | None = Field(
        None, description="Maximum number of GPUs. Default: limited only by the cluster.", examples=[256]
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="GPUs per node. Default: the GPU type's usual node.", examples=[8]
    )
    node_shape: Name | None = Field(
        None,
        description="Cloud instance type; sets the network and the price.",
        examples=["p5.48xlarge"],
    )
    interconnect: Interconnect | None = Field(
        None, description="Network bandwidth. Default: the GPU type's usual network."
    )
    gpu_power_watts: Annotated[int, Field(ge=10, le=4000)] | None = Field(
        None,
        description="Power limit of one GPU in watts (`nvidia-smi -pl`), of a superchip for CPU and GPU"
        " together. Default: the GPU's own power.",
        examples=[300],
    )
    spare_nodes: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        None, description="Idle nodes kept to replace failed ones. Default: the engine chooses.", examples=[1]
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
    """Fixed degrees of parallelism, for scripts that support only one layout."""

    dp: Degree | None = Field(None, description="Data parallel ranks.", examples=[8])
    tp: Degree | None = Field(None, description="Tensor parallel ranks.", examples=[1])
    pp: Degree | None = Field(None, description="Pipeline stages.", examples=[1])
    vpp: Degree | None = Field(None, description="Model chunks per stage (interleaving).", examples=[1])
    cp: Degree | None = Field(None, description="Context parallel ranks.", examples=[1])
    ep: Degree | None = Field(None, description="Expert parallel ranks.", examples=[1])
    micro_batch: Degree | None = Field(
        None, description="Sequences per forward pass (micro-batch).", examples=[1]
    )


class ElasticityMode(enum.StrEnum):
    """Whether rightsizer may resize a running plan."""

    OFF = "Off"
    RECOMMEND = "Recommend"
    AUTO = "Auto"


class WhenIdle(enum.StrEnum):
    """The action on a running plan whose GPUs are idle."""

    FLAG = "Flag"
    SUSPEND = "Suspend"


class Elasticity(Model):
    """Resizing of a running plan: off, recommended or automatic."""

    mode: Annotated[ElasticityMode, Strict(False)] = Field(
        ElasticityMode.RECOMMEND,
        description="Off: never resize; Recommend: publish a recommendation; Auto: resize."
        ' Quote "Off": YAML reads a bare Off as false.',
        examples=["Recommend"],
    )
    min_gpus: Gpus | None = Field(
        None, description="Minimum GPUs after a resize. Default: resources.minGPUs.", examples=[8]
    )
    max_gpus: Gpus | None = Field(
        None, description="Maximum GPUs after a resize. Default: resources.maxGPUs.", examples=[128]
    )
    when_idle: Annotated[WhenIdle, Strict(False)] = Field(
        WhenIdle.FLAG,
        description="Flag: report idle GPUs; Suspend: after a warning and idleGrace, save and stop the job.",
        examples=["Flag"],
    )
    idle_grace: Duration = Field(
        "1h",
        description="Time from the warning to the suspension, in which the job was idle without a break.",
        examples=["1h"],
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="minGPUs",
            remedy="minGPUs cannot exceed maxGPUs",
            cel="!has(self.minGPUs) || !has(self.maxGPUs) || self.minGPUs <= self.maxGPUs",
            holds=lambda e: e.min_gpus is None or e.max_gpus is None or e.min_gpus <= e.max_gpus,
        ),
        Rule(
            field="whenIdle",
            remedy='whenIdle: Suspend needs measurements; mode "Off" takes none',
            cel="self.whenIdle != 'Suspend' || self.mode != 'Off'",
            holds=lambda e: e.when_idle is not WhenIdle.SUSPEND or e.mode is not ElasticityMode.OFF,
        ),
    )
