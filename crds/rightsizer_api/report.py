"""The answer as a document: what `rightsizer plan --json` prints and what status.sizing holds."""

from typing import Annotated

from pydantic import Field, Strict

from rightsizer_api.base import Model

__all__ = ["Interval80", "LayoutReport", "Loss", "PlanReport", "Runner"]

Seconds = Annotated[float, Field(ge=0)]
Gpus = Annotated[int, Field(ge=0, le=65_536)]
Sentence = Annotated[str, Field(max_length=1024)]
Degree = Annotated[int, Field(ge=1, le=65_536)]
Causes = Annotated[dict[Annotated[str, Field(max_length=64)], float], Field(max_length=64)]


class LayoutReport(Model):
    """How the work is split; `gpus` = dp x tp x pp x cp."""

    dp: Degree = Field(description="Data parallel ranks.")
    tp: Degree = Field(1, description="Tensor parallel ranks.")
    pp: Degree = Field(1, description="Pipeline stages.")
    vpp: Degree = Field(1, description="Model chunks of a stage.")
    cp: Degree = Field(1, description="Context parallel ranks.")
    ep: Degree = Field(1, description="Expert parallel ranks.")
    expert_tp: Degree = Field(1, description="Tensor parallel ranks of an expert.")
    sequence_parallel: bool = Field(False, description="Whether norms are split over the tensor ranks too.")
    sharding: Annotated[str, Field(max_length=32)] = Field(
        "none", description="What data parallel ranks share: none, zero1, zero2, zero3 (FSDP) or hsdp."
    )
    shard_group: Annotated[int, Field(ge=0, le=65_536)] = Field(
        0, description="Ranks that share states; 0: all data and context ranks."
    )
    micro_batch: Degree = Field(1, description="Sequences of a forward pass.")
    micro_batches: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        1, description="Forward passes of a step on every pipeline."
    )
    recompute: Annotated[str, Field(max_length=32)] = Field(
        "none", description="What is recomputed in backward: none, selective or full."
    )
    recompute_layers: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0, description="Layers recomputed; 0: all that the mode means."
    )
    offload: Annotated[str, Field(max_length=64)] = Field("none", description="What lives in host memory.")
    offload_layers: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0, description="Layers of a stage whose activations are offloaded; 0: all, where activations are."
    )


class Interval80(Model):
    """The interval that holds the true finish time with probability `level`."""

    level: Annotated[float, Field(ge=0, le=1)] = Field(0.8, description="The interval's probability.")
    low_seconds: Seconds = Field(description="Its lower end, seconds from the start.")
    high_seconds: Seconds = Field(description="Its upper end, seconds from the start.")


class Runner(Model):
    """Another option, for comparison."""

    gpus: Gpus = Field(description="GPUs that train.")
    gpu_type: Annotated[str, Field(max_length=253)] = Field(description="Their type.")
    nodes: Gpus = Field(description="Nodes they fill.")
    layout: LayoutReport = Field(description="How the work is split.")
    layout_text: Sentence = Field(description="The same in short.")
    finish_seconds: Seconds = Field(description="Median time to the end, failures included.")
    finish_at_confidence_seconds: Seconds = Field(description="The same at the asked confidence.")
    cost_usd: Seconds | None = Field(None, description="Expected cost, where there is a price.")
    memory_gib: Seconds = Field(description="Device memory of the fullest GPU, GiB.")
    step_seconds: Seconds = Field(description="Time of an optimizer step.")


class Loss(Model):
    """Wall time that does not train."""

    goodput: Annotated[float, Field(ge=0, le=1)] = Field(description="Fraction of wall time that trains.")
    lost_by_cause: Causes = Field(description="What takes the rest, by cause, as fractions.")


class PlanReport(Model):
    """A sized plan, or why there is none (`feasible` false: the figures are then absent)."""

    feasible: bool = Field(description="Whether a plan meets every constraint.")
    verdict: Sentence = Field(description="The answer in one sentence.")
    binding: Annotated[str, Field(max_length=64)] = Field(description="The constraint that decides.")
    gpus: Gpus | None = Field(None, description="GPUs that train.")
    gpu_type: Annotated[str, Field(max_length=253)] | None = Field(None, description="Their type.")
    nodes: Gpus | None = Field(None, description="Nodes they fill.")
    spare_nodes: Gpus | None = Field(None, description="Nodes that wait beside them, paid for.")
    layout: LayoutReport | None = Field(None, description="How the work is split.")
    layout_text: Sentence | None = Field(None, description="The same in short.")
    finish_seconds: Seconds | None = Field(None, description="Median time to the end, failures included.")
    interval: Interval80 | None = Field(None, description="What is known of that time.")
    confidence: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="The asked probability of meeting the deadline."
    )
    finish_at_confidence_seconds: Seconds | None = Field(
        None, description="Time to the end at that confidence."
    )
    deadline_seconds: Seconds | None = Field(None, description="Time there is, where there is a deadline.")
    cost_usd: Seconds | None = Field(None, description="Expected cost, where there is a price.")
    energy_kwh: Seconds | None = Field(None, description="Expected energy of the GPUs and their nodes.")
    memory_gib: Seconds | None = Field(None, description="Device memory of the fullest GPU, GiB.")
    memory_limit_gib: Seconds | None = Field(None, description="What may be filled of it, GiB.")
    allocated_gib: Seconds | None = Field(
        None, description="What the framework's allocator holds of it, GiB."
    )
    memory_by_cause_gib: Causes | None = Field(None, description="The same by cause, GiB.")
    step_seconds: Seconds | None = Field(None, description="Time of an optimizer step.")
    step_by_cause_seconds: Causes | None = Field(None, description="The same by cause.")
    steps: Seconds | None = Field(None, description="Optimizer steps, in all.")
    global_batch_sequences: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Sequences of a step, as this layout really does."
    )
    tokens_per_second: Seconds | None = Field(
        None, description="Throughput of the whole job, while it trains."
    )
    mfu: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Model FLOPs per second over the GPUs' peak, while it trains."
    )
    goodput: Loss | None = Field(None, description="What failures and checkpoints leave.")
    checkpoint_interval_seconds: Seconds | None = Field(None, description="Time between checkpoints.")
    needs_gpus: Gpus | None = Field(None, description="Without a plan: the fewest GPUs that would do.")
    reasons: Annotated[tuple[Sentence, ...], Field(max_length=32), Strict(False)] = Field(
        (), description="Why this plan and not a smaller one."
    )
    runners_up: Annotated[tuple[Runner, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="The next options; without a plan, the nearest ones."
    )
