"""Turn a row of a table of published runs into a case: model, workload, cluster, framework and layout.

Only input columns are read, never a measurement, the row's id, its source or its note. Missing columns are
filled from the catalog (a recognised model, the GPU's usual node) or the framework's profile. Where none of
them states the sequence, the batch, the GPU or the dimensions, these are assumed, and the case says so.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.framework import (
    Framework,
    SelectiveRecompute,
    framework,
    framework_from_text,
    sharded_trainer,
    unknown_framework,
)
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Method, Precision, Recompute, Workload
from rightsizer_engine.published import assumptions, fields, shapes
from rightsizer_engine.published.contradictions import Unstated, as_it_ran
from rightsizer_engine.published.hardware import cluster_of

Row = Mapping[str, str]

_COLUMNS = """
framework year model_name layers hidden ffn_hidden heads kv_heads head_dim vocab gated_mlp tied_embeddings
moe_experts moe_topk moe_ffn_hidden moe_shared_experts seq_len gpu gpus gpus_per_node interconnect_intra
interconnect_inter dp tp pp vpp cp ep sp zero_stage_or_fsdp micro_batch global_batch grad_accum precision
recompute flash_attention optimizer offload method
"""
COLUMNS = tuple(_COLUMNS.split())
"""The input columns of the schema."""

_OPTIONAL = (
    "dense_layers expert_tp lora_rank lora_targets lora_adapters frozen_bits quantised_bits loss compile"
    " attention variable_length"
    " quantiser scaling overlap_tensor overlap_experts overlap_gradients fp8_gather"
    " deferred_head_gradients interleaved_group first_stage_layers last_stage_layers"
    " mtp_layers packed padded profile gpu_power_w"
)

OPTIONAL_COLUMNS = (*_OPTIONAL.split(), *shapes.LATENT_COLUMNS, *shapes.SIZE_COLUMNS)
"""Optional input columns; `profile` names one of the engine's profiles, whatever `framework` says."""


def case_from_row(row: Row) -> Case:
    """The case of one row (a mapping of column to text).

    Raises `UnsupportedError` with the reason if the engine cannot model the row (a TPU, a model of no size).
    """
    gpu, unknown_gpu = assumptions.gpu(fields.text(row, "gpu"), fields.number(row, "year"))
    shape, unknown_shape = shapes.dimensions(row)
    split = _parallel_sizes(row)
    profile = _scheduled(row, replace(_framework(row, split), **fields.exchanges(row)))
    sequence, unknown_sequence = assumptions.sequence_tokens(row, profile, shape)
    unknown = unknown_gpu, unknown_sequence, assumptions.batch(row)
    workload = _workload(row, profile, split, sequence)
    case = Case(
        architecture=shape,
        workload=replace(workload, assumed_inputs=any(unknown), assumed_dimensions=bool(unknown_shape)),
        cluster=cluster_of(row, gpu, split["gpus"]),
        framework=profile,
        layout=_layout(row, profile, split, gpu, layers=shape.layers),
        assumptions=tuple(filter(None, (*unknown, unknown_shape))),
    )
    unstated = Unstated(
        recompute=fields.recompute(fields.text(row, "recompute")) is None,
        sharding=not fields.text(row, "zero_stage_or_fsdp"),
    )
    return as_it_ran(case, unstated)


def framework_of_row(row: Row) -> Framework:
    """The profile that describes the row's framework."""
    return _framework(row, _parallel_sizes(row))


def _scheduled(row: Row, profile: Framework) -> Framework:
    """The profile with the row's pipeline schedule, end stages and recomputed modules."""
    modules = fields.recomputes_modules(fields.text(row, "recompute"))
    return replace(
        profile,
        selective=SelectiveRecompute.MODULES if modules else profile.selective,
        deferred_head_gradients=fields.count(row, "deferred_head_gradients"),
        interleaved_group=fields.count(row, "interleaved_group"),
        first_stage_layers=fields.count(row, "first_stage_layers"),
        last_stage_layers=fields.count(row, "last_stage_layers"),
    )


def _parallel_sizes(row: Row) -> dict[str, int]:
    """dp, tp, pp, vpp, cp, ep and gpus; missing sizes follow from the others."""
    size = {name: fields.count(row, name, 1) for name in ("tp", "pp", "vpp", "cp", "ep")}
    gpus = fields.count(row, "gpus")
    naive = "naive" in fields.text(row, "zero_stage_or_fsdp").lower()
    if naive and gpus > 1 and not fields.text(row, "pp"):
        size["pp"] = gpus
    model = size["tp"] * size["pp"] * size["cp"]
    dp = fields.count(row, "dp") or gpus // model
    if gpus and dp * model > gpus and dp % size["cp"] == 0 and dp // size["cp"] * model == gpus:
        dp //= size["cp"]  # the source counts context ranks as data ranks
    return size | {"dp": max(1, dp), "gpus": max(1, dp) * model}


def _framework(row: Row, split: Mapping[str, int]) -> Framework:
    """The profile of the row's framework and year, or an unknown framework's profile that fits the layout."""
    name, shards = fields.text(row, "framework"), fields.text(row, "zero_stage_or_fsdp").lower()
    if fields.text(row, "profile"):
        return framework(fields.text(row, "profile"))
    if "megatron-fsdp" in shards:
        return framework("megatron-fsdp")
    profile = framework_from_text(name, year=fields.number(row, "year"))
    if profile is not None and profile.family == "trainer":
        return _sharded(profile, shards)
    if profile is not None:
        return profile
    method = fields.method(fields.text(row, "method"))
    parallel = split["tp"] * split["pp"] * split["cp"] * split["ep"] > 1
    sharded = fields.sharding(shards)[0] >= Sharding.ZERO2
    eight = fields.precision(fields.text(row, "precision")) is Precision.FP8
    adapters = method in {Method.LORA, Method.QLORA} and not eight  # fp8 adapters need a Megatron-like stack
    return unknown_framework(
        model_parallel=parallel or (eight and method is Method.LORA),
        sharded=sharded,
        adapters=adapters,
        finetune=method is Method.FINETUNE,
        intricate=max(split["cp"], fields.count(row, "vpp")) > 1,
        zero=bool(re.match(r"zero[-_ ]?[123]", shards)) and "distributed" not in shards,
        year=fields.number(row, "year"),
    )


def _sharded(trainer: Framework, shards: str) -> Framework:
    """The trainer over what shards its states: DeepSpeed by ZeRO's stages, FSDP by its name."""
    for word, sharding in (("zero", "deepspeed-zero"), ("fsdp2", "fsdp2"), ("fsdp", "fsdp1")):
        if shards.startswith(word):
            return sharded_trainer(trainer, framework(sharding))
    return trainer


def _batch(row: Row, dp: int) -> tuple[int, int, int]:
    """(micro-batch in sequences, micro-batches, global batch in sequences); a missing one is derived."""
    columns = ("micro_batch", "grad_accum", "global_batch")
    micro, accumulation, total = (fields.count(row, column) for column in columns)
    if not micro:
        micro = max(1, total // (dp * accumulation)) if accumulation else 1
    if not accumulation:
        accumulation = max(1, math.ceil(total / (dp * micro)))
    return micro, accumulation, total or dp * micro * accumulation


def _workload(row: Row, profile: Framework, split: Mapping[str, int], sequence: int) -> Workload:
    batch = _batch(row, split["dp"])[2]
    defaults: Any = Workload(tokens=1.0, sequence_tokens=1, global_batch_sequences=1)
    method = fields.method(fields.text(row, "method"))
    targets = fields.lora_targets(fields.text(row, "lora_targets")) or profile.lora_targets
    compiled = fields.flag(row, "compile")
    return Workload(
        method=method,
        tokens=float(sequence) * batch,
        sequence_tokens=sequence,
        global_batch_sequences=batch,
        precision=fields.precision(fields.text(row, "precision")),
        optimizer=fields.optimizer(fields.text(row, "optimizer")),
        recompute=_recompute(row, profile)[0],
        lora_rank=max(1, fields.count(row, "lora_rank", defaults.lora_rank)),
        lora_targets=targets,
        lora_adapters=max(1, fields.count(row, "lora_adapters", 1)),
        frozen_bits=fields.count(row, "frozen_bits"),
        quantised_bits=fields.quantised_bits(fields.text(row, "quantised_bits")),
        quantiser=fields.quantiser(fields.text(row, "quantiser")),
        loss=fields.loss(fields.text(row, "loss")),
        compile=compiled,
        attention=fields.attention(fields.text(row, "attention") or fields.text(row, "flash_attention")),
        library_year=fields.released(row),
        variable_length=_variable_length(row, profile, method),
        scaling=fields.scaling(fields.text(row, "scaling")),
    )


def _variable_length(row: Row, profile: Framework, method: Method) -> bool:
    """True if batches vary in length: as stated, else as the framework's collator pads when fine-tuning."""
    for column, sign in (("variable_length", True), ("packed", False), ("padded", False)):
        stated = fields.flag(row, column)
        if stated is not None:
            return stated if sign else not stated
    return profile.pads_to_longest and method != Method.PRETRAIN


def _recompute(row: Row, profile: Framework) -> tuple[Recompute, int]:
    return fields.recompute(fields.text(row, "recompute")) or (profile.default_recompute, 0)


def _layout(row: Row, profile: Framework, split: Mapping[str, int], gpu: Gpu, *, layers: int) -> Layout:
    shard, group = fields.sharding(fields.text(row, "zero_stage_or_fsdp") or profile.default_sharding)
    if group < 0:
        group = max(1, fields.count(row, "gpus_per_node", gpu.gpus_per_node) // (split["tp"] * split["pp"]))
    sequence = fields.flag(row, "sp")
    sequence = profile.sequence_parallel_default if sequence is None else sequence
    micro, accumulation, _ = _batch(row, split["dp"])
    mode, recomputed = _recompute(row, profile)
    offloaded, away = fields.offload(fields.text(row, "offload"), layers / split["pp"])
    return Layout(
        dp=split["dp"],
        tp=split["tp"],
        pp=split["pp"],
        vpp=split["vpp"] if split["pp"] > 1 else 1,
        cp=split["cp"],
        ep=split["ep"],
        expert_tp=_expert_tp(row, profile, split),
        sequence_parallel=bool(sequence) and split["tp"] > 1,
        sharding=shard,
        shard_group=min(group, split["dp"] * split["cp"]),
        micro_batch=micro,
        micro_batches=accumulation,
        recompute=mode,
        recompute_layers=recomputed,
        offload=offloaded,
        offload_percent=away,
    )


def _expert_tp(row: Row, profile: Framework, split: Mapping[str, int]) -> int:
    """Tensor-parallel ranks per expert: as stated, else the profile's if there are enough ranks."""
    stated = fields.count(row, "expert_tp")
    if stated:
        return stated
    enough = split["ep"] <= split["dp"] * split["cp"]
    return split["tp"] if profile.splits_experts_by_tensor and enough else 1
