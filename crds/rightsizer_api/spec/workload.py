"""spec.workload: tokens, data set, and the settings that affect time or memory."""

import enum
from typing import Annotated, ClassVar

from pydantic import Field, Strict

from rightsizer_api.base import Model, Rule, fixed
from rightsizer_api.quantities import Tokens
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Quantiser,
    ScaleGranularity,
)

_RELEASE_PATTERN = r"^(20[0-9]{2}-(0[1-9]|1[0-2])|[12][0-9]\.(0[1-9]|1[0-2]))$"
"""A month: 2025-06, or NVIDIA's container tag 25.06."""


class RecomputeMode(enum.StrEnum):
    """Activation recompute in backward; auto lets the search choose."""

    AUTO = "auto"
    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class LoraTargets(enum.StrEnum):
    """Matrices with adapters."""

    ATTENTION = "attention"
    ALL = "all"
    EXPERTS = "all+experts"


class Dataset(Model):
    """A data set: examples x length x epochs = tokens."""

    examples: Tokens = Field(description="Examples in the data set.", examples=["52k"])
    length: Annotated[int, Field(ge=1, le=16_777_216)] | None = Field(
        None,
        description="Mean tokens per example, padding included. Default: the sequence length.",
        examples=[512],
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
        description="Matrices with adapters; all+experts: each expert too. Default: the framework's.",
        examples=["all"],
    )
    adapters: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="Adapters trained at once.", examples=[1]
    )
    frozen_bits: Annotated[int, Field(ge=16, le=32, multiple_of=16)] | None = Field(
        None,
        description="lora: bits of a frozen weight. Default: as the framework keeps weights.",
        examples=[16],
    )


class WorkloadSpec(Model):
    """The training work: exactly one of tokens and dataset."""

    method: Annotated[Method, Strict(False)] = Field(
        Method.PRETRAIN,
        description="pretrain or finetune (all weights), lora or qlora (adapters).",
        examples=["pretrain"],
        json_schema_extra=fixed("the method cannot change: its checkpoints would not load"),
    )
    tokens: Tokens | None = Field(None, description="Total training tokens.", examples=["100B"])
    dataset: Dataset | None = Field(None, description="Total training tokens as examples x length x epochs.")
    sequence_length: Annotated[int, Field(ge=1, le=16_777_216)] | None = Field(
        None,
        description="Tokens per training sequence. Default: the data set's length, else for pretrain what"
        " the catalog's model was pretrained with, or 8192; otherwise 2048; at most the model's maximum.",
        examples=[8192],
    )
    global_batch_tokens: Tokens | None = Field(
        None,
        description="Tokens per optimizer step, over all GPUs. Default for pretrain: what the catalog's"
        " model was pretrained with, else compute-optimal (arXiv:2401.02954), at most 16M; otherwise 64"
        " sequences. rightsizer may change it by 5 % (a default by 10 %) so that it divides over the ranks.",
        examples=["4M"],
    )
    global_batch_sequences: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = Field(
        None, description="Sequences per optimizer step; replaces globalBatchTokens.", examples=[512]
    )
    precision: Annotated[Precision, Strict(False)] | None = Field(
        None,
        description="Matmul data type. Default: bf16, or fp16 if no GPU type has bf16; for pretrain"
        " fp8, if the catalog's model was pretrained in fp8 and every GPU type has it.",
        examples=["bf16"],
    )
    optimizer: Annotated[Optimizer, Strict(False)] = Field(
        Optimizer.ADAMW,
        description="The optimizer; sets the optimizer state bytes per parameter.",
        examples=["adamw"],
        json_schema_extra=fixed("the optimizer cannot change: checkpoints hold its state"),
    )
    recompute: Annotated[RecomputeMode, Strict(False)] = Field(
        RecomputeMode.AUTO,
        description="Activation recompute in backward; auto: the search chooses.",
        examples=["auto"],
    )
    reference_model: bool = Field(
        False,
        description="DPO and the like: a frozen copy of the model reads each sequence too; with adapters, the"
        " base without them. Tokens, batch and examples count both answers of a pair.",
        examples=[True],
    )
    lora: Lora | None = Field(None, description="Low-rank adapters. Default for lora and qlora: rank 16.")
    quantised_bits: Annotated[int, Field(ge=2, le=8)] = Field(
        4, description="qlora: bits per frozen weight.", examples=[4]
    )
    quantiser: Annotated[Quantiser, Strict(False)] = Field(
        Quantiser.BITSANDBYTES,
        description="qlora: the dequantization kernel.",
        examples=["bitsandbytes"],
    )
    scaling: Annotated[ScaleGranularity, Strict(False)] = Field(
        ScaleGranularity.TENSOR,
        description="8-bit matmuls: one scale per tensor or per row.",
        examples=["tensor"],
    )
    loss: Annotated[LossKernel, Strict(False)] = Field(
        LossKernel.AUTO,
        description="Cross-entropy kernel; auto: the framework's.",
        examples=["auto"],
    )
    compile: bool | None = Field(
        None,
        description="Whether the model is compiled (torch.compile). Default: the framework's.",
        examples=[True],
    )
    attention: Annotated[AttentionKernel, Strict(False)] = Field(
        AttentionKernel.AUTO,
        description="Attention kernel; auto: the framework's; sdpa: torch's choice; cudnn: also of TE.",
        examples=["flash"],
    )
    library_version: Annotated[str, Field(max_length=10, pattern=_RELEASE_PATTERN)] | None = Field(
        None,
        description="Release of the training library, as YEAR-MONTH (2025-06) or an NGC tag (25.06).",
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
