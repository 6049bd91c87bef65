"""The plan as a document: the output of `rightsizer plan --json` and the value of status.sizing."""

from typing import Annotated

from pydantic import Field, Strict

from rightsizer_api.base import Model

Seconds = Annotated[float, Field(ge=0)]
Gpus = Annotated[int, Field(ge=0, le=65_536)]
Sentence = Annotated[str, Field(max_length=1024)]
Degree = Annotated[int, Field(ge=1, le=65_536)]
Causes = Annotated[dict[Annotated[str, Field(max_length=64)], float], Field(max_length=64)]


class LayoutReport(Model):
    """The parallel layout; `gpus` = dp x tp x pp x cp."""

    dp: Degree = Field(description="Data parallel ranks.")
    tp: Degree = Field(1, description="Tensor parallel ranks.")
    pp: Degree = Field(1, description="Pipeline stages.")
    vpp: Degree = Field(1, description="Model chunks per stage.")
    cp: Degree = Field(1, description="Context parallel ranks.")
    ep: Degree = Field(1, description="Expert parallel ranks.")
    expert_tp: Degree = Field(1, description="Tensor parallel ranks per expert.")
    sequence_parallel: bool = Field(False, description="Whether norms are also split over the tensor ranks.")
    sharding: Annotated[str, Field(max_length=32)] = Field(
        "none", description="Sharding over data parallel ranks: none, zero1, zero2, zero3 (FSDP) or hsdp."
    )
    shard_group: Annotated[int, Field(ge=0, le=65_536)] = Field(
        0, description="Ranks per sharding group; 0: all data and context ranks."
    )
    micro_batch: Degree = Field(1, description="Sequences per forward pass.")
    micro_batches: Annotated[int, Field(ge=1, le=1_000_000_000)] = Field(
        1, description="Forward passes per step and pipeline."
    )
    recompute: Annotated[str, Field(max_length=32)] = Field(
        "none", description="Activation recompute in backward: none, selective or full."
    )
    recompute_layers: Annotated[int, Field(ge=0, le=10_000)] = Field(
        0, description="Recomputed layers; 0: all layers that the mode covers."
    )
    offload: Annotated[str, Field(max_length=64)] = Field("none", description="State kept in host memory.")
    offload_percent: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="Percent of the activations in host memory; 0: all, if activations are offloaded."
    )


class Interval80(Model):
    """Prediction interval of the finish time, with probability `level`."""

    level: Annotated[float, Field(ge=0, le=1)] = Field(0.8, description="Probability of the interval.")
    low_seconds: Seconds = Field(description="Lower bound, seconds from the start.")
    high_seconds: Seconds = Field(description="Upper bound, seconds from the start.")


class Runner(Model):
    """Another option, for comparison."""

    gpus: Gpus = Field(description="GPUs used for training.")
    gpu_type: Annotated[str, Field(max_length=253)] = Field(description="GPU type.")
    nodes: Gpus = Field(description="Nodes used for training.")
    layout: LayoutReport = Field(description="The parallel layout.")
    layout_text: Sentence = Field(description="The layout, abbreviated.")
    finish_seconds: Seconds = Field(description="Median time to finish, failures included.")
    finish_at_confidence_seconds: Seconds = Field(description="Time to finish at the requested confidence.")
    cost_usd: Seconds | None = Field(None, description="Expected cost, if a price is known.")
    memory_gib: Seconds = Field(description="Device memory of the fullest GPU, GiB.")
    step_seconds: Seconds = Field(description="Time per optimizer step.")


class Loss(Model):
    """Goodput, and the wall time lost by cause."""

    goodput: Annotated[float, Field(ge=0, le=1)] = Field(description="Fraction of wall time spent training.")
    lost_by_cause: Causes = Field(description="Lost fraction of wall time, by cause.")


Probability = Annotated[float, Field(ge=0, le=1)]


class OpeningReport(Model):
    """Two-stage sizing: the job opens with `gpus`, is measured, and then takes what its rate needs."""

    text: Sentence = Field(description="The opening in one line.")
    gpus: Gpus = Field(description="GPUs to open with.")
    look_after_seconds: Seconds = Field(description="Training after which the rate is known, seconds.")
    reserve_gpus: Gpus = Field(
        alias="reserveGPUs", description="The most GPUs that the job takes when it grows."
    )
    likely_gpus: Gpus = Field(
        alias="likelyGPUs", description="The job never takes more than these, with likelyProbability."
    )
    likely_probability: Probability = Field(description="Probability of staying within likelyGPUs.")
    deadline_probability: Probability = Field(
        description="Probability of meeting the deadline if the job is resized as measured."
    )
    static_gpus: Gpus | None = Field(
        None,
        alias="staticGPUs",
        description="GPUs that the deadline would need if the job were never resized.",
    )


Value = Annotated[str, Field(max_length=253)]
Counted = Annotated[int, Field(ge=0, le=1_000_000_000)]


class FacetReport(Model):
    """Published runs that share one facet with the plan."""

    facet: Annotated[str, Field(max_length=64)] = Field(
        description="stack, gpu, method, sequence, kind (dense or experts) or precision."
    )
    value: Value = Field(description="The plan's value.")
    sources: Counted = Field(description="Independent sources of such runs.")
    rows: Counted = Field(description="Such runs with a measured step time.")


class FamiliarityReport(Model):
    """The evidence behind the plan; intervals are wider the less there is."""

    level: Annotated[str, Field(max_length=64)] = Field(
        description="well measured, partly measured, hardly measured or never measured."
    )
    evidence: Annotated[float, Field(ge=0)] = Field(
        description="Sources' worth of measured runs; 1: as much as one source that measured exactly this."
    )
    sources: Counted = Field(description="Independent sources of runs that share all facets.")
    rows: Counted = Field(description="Runs that share all facets.")
    unfamiliar: Annotated[tuple[Value, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="Values of the plan that no measured run has."
    )
    facets: Annotated[tuple[FacetReport, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="Measured runs by facet."
    )
    advice: Sentence = Field("", description="What to measure before the plan is trusted; empty: nothing.")


class PlanReport(Model):
    """A sized plan, or why none exists (`feasible` is false and the figures are absent)."""

    feasible: bool = Field(description="Whether a plan meets every constraint.")
    verdict: Sentence = Field(description="The result in one sentence.")
    binding: Annotated[str, Field(max_length=64)] = Field(description="The binding constraint.")
    gpus: Gpus | None = Field(None, description="GPUs used for training.")
    gpu_type: Annotated[str, Field(max_length=253)] | None = Field(None, description="GPU type.")
    nodes: Gpus | None = Field(None, description="Nodes used for training.")
    opening: OpeningReport | None = Field(
        None, description="How an elastic job goes on from gpus, its opening size; absent: the size is fixed."
    )
    spare_nodes: Gpus | None = Field(None, description="Idle spare nodes, included in the cost.")
    layout: LayoutReport | None = Field(None, description="The parallel layout.")
    layout_text: Sentence | None = Field(None, description="The layout, abbreviated.")
    finish_seconds: Seconds | None = Field(None, description="Median time to finish, failures included.")
    interval: Interval80 | None = Field(None, description="Prediction interval of the finish time.")
    confidence: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Requested probability of meeting the deadline."
    )
    finish_at_confidence_seconds: Seconds | None = Field(
        None, description="Time to finish at that confidence."
    )
    deadline_seconds: Seconds | None = Field(None, description="Time until the deadline, if one is set.")
    cost_usd: Seconds | None = Field(None, description="Expected cost, if a price is known.")
    energy_kwh: Seconds | None = Field(None, description="Expected energy of the GPUs and their nodes, kWh.")
    memory_gib: Seconds | None = Field(None, description="Device memory of the fullest GPU, GiB.")
    memory_limit_gib: Seconds | None = Field(None, description="Usable device memory per GPU, GiB.")
    allocated_gib: Seconds | None = Field(None, description="Part held by the framework's allocator, GiB.")
    memory_by_cause_gib: Causes | None = Field(None, description="Device memory by cause, GiB.")
    step_seconds: Seconds | None = Field(None, description="Time per optimizer step.")
    step_by_cause_seconds: Causes | None = Field(None, description="Step time by cause.")
    steps: Seconds | None = Field(None, description="Total optimizer steps.")
    global_batch_sequences: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Sequences per optimizer step with this layout."
    )
    tokens_per_second: Seconds | None = Field(None, description="Throughput of the whole job while training.")
    mfu: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="Model FLOPs utilisation while training."
    )
    goodput: Loss | None = Field(None, description="Goodput and lost time by cause.")
    checkpoint_interval_seconds: Seconds | None = Field(None, description="Time between checkpoints.")
    familiarity: FamiliarityReport | None = Field(None, description="How much was measured like the plan.")
    needs_gpus: Gpus | None = Field(
        None, description="Without a plan: the fewest GPUs that would meet the goal."
    )
    reasons: Annotated[tuple[Sentence, ...], Field(max_length=32), Strict(False)] = Field(
        (), description="Reasons why a smaller plan does not suffice."
    )
    runners_up: Annotated[tuple[Runner, ...], Field(max_length=16), Strict(False)] = Field(
        (), description="The next best options; without a plan, the nearest ones."
    )


class LeverReport(Model):
    """A change that needs fewer GPUs or less money, or makes a plan possible."""

    change: Sentence = Field(description="What to change.")
    flag: Sentence = Field(description="What to write for it; empty: several things.")
    worth: float = Field(description="The share of GPUs or money that it saves; 0 where there is no plan.")
    gpus: Gpus = Field(description="GPUs with this change.")
    gpu_type: Annotated[str, Field(max_length=253)] = Field(description="GPU type.")
    finish_seconds: Seconds = Field(description="Median time to finish.")
    cost_usd: Seconds | None = Field(None, description="Expected cost, if a price is known.")
    gpus_saved: int = Field(description="GPUs fewer than in the plan.")
    usd_saved: float | None = Field(None, description="Dollars less than in the plan.")
    later_seconds: float = Field(description="How much later training ends.")
