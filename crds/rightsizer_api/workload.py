"""spec.workload: how much is trained, on what, and with which knobs that move time or memory."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field, Strict

from rightsizer.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Quantiser,
    Scaling,
)
from rightsizer_api.base import Model, Rule, fixed
from rightsizer_api.quantities import Tokens

__all__ = ["RELEASE_PATTERN", "Dataset", "Lora", "LoraTargets", "RecomputeMode", "WorkloadSpec"]

RELEASE_PATTERN = r"^(20[0-9]{2}-(0[1-9]|1[0-2])|[12][0-9]\.(0[1-9]|1[0-2]))$"
"""A month: 2025-06, or as NVIDIA tags its containers, 25.06."""


class RecomputeMode(enum.StrEnum):
    """What is recomputed in backward; auto lets the search choose."""

    AUTO = "auto"
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class LoraTargets(enum.StrEnum):
    """Which matrices get adapters."""

    ATTENTION = "attention"
    ALL = "all"


class Dataset(Model):
    """The tokens as a data set: examples x length x epochs."""

    examples: Tokens = Field(description="Examples in the data set.", examples=["52k"])
    length: Annotated[int, Field(ge=1, le=16_777_216)] = Field(
        description="Tokens of an example, on average, as trained (padding included).", examples=[512]
    )
    epochs: Annotated[float, Field(ge=0.001, le=10_000)] = Field(
        1.0, description="Passes over the data set.", examples=[3]
    )


class Lora(Model):
    """Low-rank adapters, for the methods lora and qlora."""

    rank: Annotated[int, Field(ge=1, le=65_536)] = Field(
        16, description="Rank of the adapters.", examples=[16]
    )
    targets: Annotated[LoraTargets, Strict(False)] | None = Field(
        None,
        description="Which matrices get adapters: attention's, or all. Default: as the framework does.",
        examples=["all"],
    )


class WorkloadSpec(Model):
    """How much is trained and how: exactly one of tokens and dataset."""

    method: Annotated[Method, Strict(False)] = Field(
        Method.PRETRAIN,
        description="What is trained: everything (pretrain, finetune) or adapters (lora, qlora).",
        examples=["pretrain"],
        json_schema_extra=fixed("the method cannot change: checkpoints hold other states"),
    )
    tokens: Tokens | None = Field(None, description="Tokens to train on, in all.", examples=["100B"])
    dataset: Dataset | None = Field(None, description="The same as examples x length x epochs.")
    sequence_length: Annotated[int, Field(ge=1, le=16_777_216)] | None = Field(
        None,
        description="Tokens of a training sequence. Default: the data set's length, else 8192 to pretrain and"
        " 2048 otherwise; never past the model's own.",
        examples=[8192],
    )
    global_batch_tokens: Tokens | None = Field(
        None,
        description="Tokens of an optimizer step, over all GPUs. Default to pretrain: what suits the compute"
        " (arXiv:2401.02954), at most 16M; 64 sequences otherwise. What divides over the ranks within 5 % is"
        " taken (10 % of a default).",
        examples=["4M"],
    )
    global_batch_sequences: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        None, description="The same in sequences.", examples=[512]
    )
    precision: Annotated[Precision, Strict(False)] = Field(
        Precision.BF16, description="Data type of the matmuls.", examples=["bf16"]
    )
    optimizer: Annotated[Optimizer, Strict(False)] = Field(
        Optimizer.ADAMW,
        description="The optimizer, which decides the bytes kept for a parameter.",
        examples=["adamw"],
        json_schema_extra=fixed("the optimizer cannot change: checkpoints hold its states"),
    )
    recompute: Annotated[RecomputeMode, Strict(False)] = Field(
        RecomputeMode.AUTO,
        description="What is recomputed in backward; auto: the search chooses.",
        examples=["auto"],
    )
    lora: Lora | None = Field(None, description="Low-rank adapters; defaults apply if the method needs them.")
    quantised_bits: Annotated[int, Field(ge=2, le=8)] = Field(
        4, description="Bits of a frozen weight, for the method qlora.", examples=[4]
    )
    quantiser: Annotated[Quantiser, Strict(False)] = Field(
        Quantiser.BITSANDBYTES,
        description="What unpacks frozen weights, for the method qlora.",
        examples=["bitsandbytes"],
    )
    scaling: Annotated[Scaling, Strict(False)] = Field(
        Scaling.TENSOR,
        description="What shares a scale in 8-bit matmuls: a tensor, or each row of it.",
        examples=["tensor"],
    )
    loss: Annotated[LossKernel, Strict(False)] = Field(
        LossKernel.AUTO,
        description="How the cross-entropy is computed; auto: as the framework does.",
        examples=["auto"],
    )
    compile: bool | None = Field(
        None, description="Whether the model is compiled. Default: as the framework does.", examples=[True]
    )
    attention: Annotated[AttentionKernel, Strict(False)] = Field(
        AttentionKernel.AUTO,
        description="How attention is computed; auto: as the framework does.",
        examples=["flash"],
    )
    library_version: Annotated[str, Field(max_length=10, pattern=RELEASE_PATTERN)] | None = Field(
        None,
        description="When the training library was released, as YEAR-MONTH (2025-06) or an NGC tag (25.06).",
        examples=["2025-06"],
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="tokens",
            remedy="give exactly one of tokens and dataset",
            cel="has(self.tokens) != has(self.dataset)",
            holds=lambda w: (w.tokens is None) != (w.dataset is None),
        ),
        Rule(
            field="globalBatchTokens",
            remedy="give globalBatchTokens or globalBatchSequences, not both",
            cel="!(has(self.globalBatchTokens) && has(self.globalBatchSequences))",
            holds=lambda w: w.global_batch_tokens is None or w.global_batch_sequences is None,
        ),
        Rule(
            field="lora",
            remedy="lora belongs to the methods lora and qlora only",
            cel="!has(self.lora) || self.method in ['lora', 'qlora']",
            holds=lambda w: w.lora is None or w.method in {Method.LORA, Method.QLORA},
        ),
    )
