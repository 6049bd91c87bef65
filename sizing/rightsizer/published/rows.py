"""A row of a table of published runs becomes a case: what was run, on what, how it was split.

Only inputs are read: never a measured column, never the row's id, source or free-text note. Columns that a
table lacks are filled from the catalog (a recognised model, the GPU's usual node) or the framework's profile.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rightsizer.catalog import lookup
from rightsizer.domain.architecture import Architecture, AttentionKind
from rightsizer.domain.cases import Case, Cases
from rightsizer.domain.framework import (
    COMPILED_SINCE,
    Framework,
    framework,
    framework_from_text,
    unknown_framework,
)
from rightsizer.domain.hardware import Cluster, Gpu
from rightsizer.domain.layout import Layout, Sharding
from rightsizer.domain.workload import LossKernel, Method, Precision, Recompute, Workload
from rightsizer.errors import InputError, RightsizerError, UnsupportedError
from rightsizer.estimate import memory
from rightsizer.estimate.parameters import load_memory
from rightsizer.published import fields

__all__ = ["COLUMNS", "OPTIONAL_COLUMNS", "case_from_row"]

Row = Mapping[str, str]

_COLUMNS = """
framework year model_name layers hidden ffn_hidden heads kv_heads head_dim vocab gated_mlp tied_embeddings
moe_experts moe_topk moe_ffn_hidden moe_shared_experts seq_len gpu gpus gpus_per_node interconnect_intra
interconnect_inter dp tp pp vpp cp ep sp zero_stage_or_fsdp micro_batch global_batch grad_accum precision
recompute flash_attention optimizer offload method
"""
CROWDED = 1.0 / 3.0
"""Share of a GPU's memory that nobody gives to logits: above it a loss in chunks is assumed. A guess."""

COLUMNS = tuple(_COLUMNS.split())
"""The input columns of the schema."""

_OPTIONAL = (
    "dense_layers expert_tp lora_rank lora_targets quantised_bits loss compile attention variable_length"
    " quantiser scaling overlap_tensor overlap_experts overlap_gradients fp8_gather launch_blocking"
    " deferred_head_gradients interleaved_group first_stage_layers last_stage_layers"
)
_LATENT = "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim"
"""Widths of multi-head latent attention."""

OPTIONAL_COLUMNS = (*_OPTIONAL.split(), *_LATENT.split(), "mtp_layers", "packed", "padded")
"""Columns that are read when a table has them."""


def case_from_row(row: Row) -> Case:
    """The case of one row (a mapping of column to text).

    Raises `UnsupportedError`, with the reason, for what the engine cannot model (no dimensions, no such GPU).
    """
    gpu = _gpu(fields.text(row, "gpu"))
    shape = _dimensions(row)
    split = _parallel_sizes(row)
    profile = _scheduled(row, replace(_framework(row, split), **fields.exchanges(row)))
    case = Case(
        architecture=shape,
        workload=_workload(row, profile, split),
        cluster=_cluster(row, gpu, split["gpus"]),
        framework=profile,
        layout=_layout(row, profile, split, gpu),
    )
    case = _losing_little(case)
    stated = fields.recompute(fields.text(row, "recompute")) is not None
    return case if stated else _recomputing_enough(case)


def _scheduled(row: Row, profile: Framework) -> Framework:
    """The profile with what the row says of the pipeline's schedule and its end stages."""
    return replace(
        profile,
        deferred_head_gradients=fields.count(row, "deferred_head_gradients"),
        interleaved_group=fields.count(row, "interleaved_group"),
        first_stage_layers=fields.count(row, "first_stage_layers"),
        last_stage_layers=fields.count(row, "last_stage_layers"),
    )


def _losing_little(case: Case) -> Case:
    """An unknown framework, its loss not stated: fused where one sequence's logits would crowd the GPU.

    Before fused losses were usual: only where they would not fit at all. Who splits the context has split the
    logits with it, and needs no such kernel.
    """
    if case.framework.known or case.workload.loss is not LossKernel.AUTO or case.layout.cp > 1:
        return case
    tokens = case.workload.sequence_tokens / (case.layout.cp * case.layout.tp)
    logits_bytes = load_memory().logit_bytes_eager * tokens * case.architecture.vocab
    if logits_bytes < CROWDED * case.cluster.gpu.memory_bytes:
        return case
    if 0 < case.workload.library_year < COMPILED_SINCE and _fits(case):
        return case
    return replace(case, workload=replace(case.workload, loss=LossKernel.FUSED))


def _fits(case: Case) -> bool:
    return memory.could_run_in(memory.estimate(Cases.of(case)), case.cluster.gpu.memory_bytes)


def _recomputing_enough(case: Case) -> Case:
    """A run whose recomputation is not stated, but which ran: the least recomputation with which it fits."""
    for mode in (case.layout.recompute, Recompute.SELECTIVE, Recompute.FULL):
        if mode is Recompute.SELECTIVE and not case.framework.can_selective_recompute:
            continue
        tried = replace(
            case,
            layout=replace(case.layout, recompute=mode),
            workload=replace(case.workload, recompute=mode),
        )
        if _fits(tried):
            break
    return tried


def _gpu(name: str) -> Gpu:
    """The catalog's GPU of that name; an incomplete name ("A100-80GB") means the part most clusters have."""
    if not name:
        raise UnsupportedError("gpu: not stated; name the GPU, such as H100-SXM5-80GB")
    try:
        return lookup.gpu(name)
    except InputError as unknown:
        wanted = _tokens(name)
        fits = [g for g in lookup.gpus() if wanted <= _tokens(" ".join((g.name, *g.aliases)))]
        if not fits:
            raise UnsupportedError(f"gpu: {name!r} is not in the catalog") from unknown
        return min(fits, key=lambda g: ("sxm" not in g.name.lower(), g.memory_bytes, g.name))


def _tokens(name: str) -> frozenset[str]:
    """A part name's words, without the maker's."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return frozenset(words) - {"nvidia", "amd", "tesla", "geforce", "sxm", "gpu"}


def _known_model(row: Row, hidden: int) -> Architecture | None:
    """The catalog's model of that name, if its width agrees with the row's."""
    name = fields.text(row, "model_name")
    for candidate in (name, name.split("(")[0].strip()):
        found = _model(candidate) if candidate else None
        if found is not None and hidden in {0, found.hidden}:
            return found
    return None


@lru_cache(maxsize=4096)
def _model(name: str) -> Architecture | None:
    """The catalog's model, or None: a published table names one model in many rows."""
    try:
        return lookup.model(name)
    except RightsizerError:
        return None


def _dimensions(row: Row) -> Architecture:
    """The architecture: the row's dimensions first, then the recognised model's, then what follows."""
    hidden, layers = fields.count(row, "hidden"), fields.count(row, "layers")
    known = _known_model(row, hidden)
    heads = fields.count(row, "heads", known.heads if known else 0)
    hidden, layers = hidden or (known.hidden if known else 0), layers or (known.layers if known else 0)
    for name, value in (("layers", layers), ("hidden", hidden), ("heads", heads)):
        if value < 1:
            raise UnsupportedError(f"{name}: not stated, and the model's name is not in the catalog")
    base = known or Architecture(
        name=fields.text(row, "model_name") or "unnamed",
        layers=layers,
        hidden=hidden,
        ffn_hidden=0,
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, hidden // heads),
        vocab=50257,
    )
    shape = replace(
        base,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(row, base, heads),
        head_dim=max(1, fields.count(row, "head_dim", base.head_dim)),
        vocab=max(1, fields.count(row, "vocab", base.vocab)),
        gated_mlp=_or(fields.flag(row, "gated_mlp"), base.gated_mlp),
        tied_embeddings=_or(fields.flag(row, "tied_embeddings"), base.tied_embeddings),
    )
    shape = _latent(row, _truncated(row, shape, base))
    return _feed_forward(row, replace(shape, mtp_layers=fields.count(row, "mtp_layers", shape.mtp_layers)))


def _latent(row: Row, shape: Architecture) -> Architecture:
    """With the widths of latent attention, where the row states them."""
    names = _LATENT.split()
    stated: dict[str, Any] = {name: fields.count(row, name, getattr(shape, name)) for name in names}
    if not fields.count(row, "kv_lora_rank"):
        return shape
    return replace(shape, attention=AttentionKind.LATENT, kv_heads=shape.heads, **stated)


def _or(stated: bool | None, otherwise: bool) -> bool:
    return otherwise if stated is None else stated


def _kv_heads(row: Row, base: Architecture, heads: int) -> int:
    """Key/value heads; latent attention has as many as heads."""
    if base.attention == AttentionKind.LATENT:
        return heads
    return min(heads, max(1, fields.count(row, "kv_heads", base.kv_heads)))


def _truncated(row: Row, shape: Architecture, base: Architecture) -> Architecture:
    """A model with layers left out keeps its mix of layers, and loses what belongs to the whole."""
    dense = fields.count(row, "dense_layers", math.ceil(base.dense_layers * shape.layers / base.layers))
    if shape.layers == base.layers:
        return replace(shape, dense_layers=min(dense, shape.layers))
    windowed = round(base.sliding_layers * shape.layers / base.layers)
    return replace(shape, dense_layers=min(dense, shape.layers), sliding_layers=windowed, mtp_layers=0)


def _feed_forward(row: Row, shape: Architecture) -> Architecture:
    """Dense and expert widths; a row that names experts but no dense width has no dense layers to size."""
    experts = fields.count(row, "moe_experts", shape.experts)
    ffn = fields.count(row, "ffn_hidden", shape.ffn_hidden)
    expert_ffn = fields.count(row, "moe_ffn_hidden", shape.expert_ffn_hidden) or ffn
    ffn = ffn or expert_ffn or 4 * shape.hidden
    if experts < 2:
        return replace(shape, ffn_hidden=ffn, experts=0, top_k=0, shared_experts=0, dense_layers=0)
    return replace(
        shape,
        ffn_hidden=ffn,
        experts=experts,
        expert_ffn_hidden=expert_ffn or ffn,
        top_k=min(experts, max(1, fields.count(row, "moe_topk", shape.top_k))),
        shared_experts=fields.count(row, "moe_shared_experts", shape.shared_experts),
    )


def _parallel_sizes(row: Row) -> dict[str, int]:
    """dp, tp, pp, vpp, cp, ep and gpus; the missing ones follow from the others."""
    size = {name: max(1, fields.count(row, name, 1)) for name in ("tp", "pp", "vpp", "cp", "ep")}
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
    """The profile that the row's framework text and year name, or the unknown one that fits the layout."""
    words, shards = fields.text(row, "framework"), fields.text(row, "zero_stage_or_fsdp").lower()
    if "megatron-fsdp" in shards:
        return framework("megatron-fsdp")
    found = framework_from_text(words, year=fields.number(row, "year"))
    if found is not None and found.family == "trainer" and shards.startswith("zero"):
        return framework("deepspeed-zero")  # a trainer's ZeRO stages are DeepSpeed's
    if found is not None:
        return found
    how = fields.method(fields.text(row, "method"))
    parallel = split["tp"] * split["pp"] * split["cp"] * split["ep"] > 1
    sharded = fields.sharding(shards)[0] >= Sharding.ZERO2
    eight = fields.precision(fields.text(row, "precision")) is Precision.FP8
    adapters = how in {Method.LORA, Method.QLORA} and not eight  # adapters in fp8 need a Megatron-like stack
    return unknown_framework(
        model_parallel=parallel or (eight and how is Method.LORA),
        sharded=sharded,
        adapters=adapters,
        finetune=how is Method.FINETUNE,
        intricate=max(split["cp"], fields.count(row, "vpp")) > 1,
        zero=bool(re.match(r"zero[-_ ]?[123]", shards)) and "distributed" not in shards,
        year=fields.number(row, "year"),
    )


def _batch(row: Row, dp: int) -> tuple[int, int, int]:
    """(micro-batch, micro-batches, global batch) in sequences, each from the others when missing."""
    columns = ("micro_batch", "grad_accum", "global_batch")
    micro, accumulation, total = (fields.count(row, column) for column in columns)
    if not micro:
        micro = max(1, total // (dp * accumulation)) if accumulation else 1
    if not accumulation:
        accumulation = max(1, math.ceil(total / (dp * micro)))
    return micro, accumulation, total or dp * micro * accumulation


def _workload(row: Row, profile: Framework, split: Mapping[str, int]) -> Workload:
    sequence = fields.count(row, "seq_len")
    if sequence < 1:
        raise UnsupportedError("seq_len: not stated; tokens of a sequence decide time and memory")
    batch = _batch(row, split["dp"])[2]
    method_words = fields.text(row, "method")
    defaults: Any = Workload(tokens=1.0, sequence_tokens=1, global_batch_sequences=1)
    how = fields.method(method_words)
    targets = fields.lora_targets(fields.text(row, "lora_targets")) or profile.lora_targets
    compiled = fields.flag(row, "compile")
    return Workload(
        method=how,
        tokens=float(sequence) * batch,
        sequence_tokens=sequence,
        global_batch_sequences=batch,
        precision=fields.precision(fields.text(row, "precision")),
        optimizer=fields.optimizer(fields.text(row, "optimizer")),
        recompute=_recompute(row, profile)[0],
        lora_rank=max(1, fields.count(row, "lora_rank", defaults.lora_rank)),
        lora_targets=targets,
        quantised_bits=fields.quantised_bits(fields.text(row, "quantised_bits")),
        quantiser=fields.quantiser(fields.text(row, "quantiser")),
        loss=fields.loss(fields.text(row, "loss")),
        compile=compiled,
        attention=fields.attention(fields.text(row, "flash_attention") or fields.text(row, "attention")),
        library_year=fields.released(row),
        variable_length=_variable_length(row, profile, how),
        scaling=fields.scaling(fields.text(row, "scaling")),
        launch_blocking=bool(fields.flag(row, "launch_blocking")),
    )


def _variable_length(row: Row, profile: Framework, how: Method) -> bool:
    """Whether batches vary in length: as stated, or as the framework's collator does it when fine-tuning."""
    for column, sign in (("variable_length", True), ("packed", False), ("padded", False)):
        stated = fields.flag(row, column)
        if stated is not None:
            return stated if sign else not stated
    return profile.pads_to_longest and how != Method.PRETRAIN


def _recompute(row: Row, profile: Framework) -> tuple[Recompute, int]:
    return fields.recompute(fields.text(row, "recompute")) or (profile.default_recompute, 0)


def _layout(row: Row, profile: Framework, split: Mapping[str, int], gpu: Gpu) -> Layout:
    words = fields.text(row, "zero_stage_or_fsdp") or profile.default_sharding
    shard, group = fields.sharding(words)
    if group < 0:
        group = max(1, fields.count(row, "gpus_per_node", gpu.gpus_per_node) // (split["tp"] * split["pp"]))
    sequence = fields.flag(row, "sp")
    sequence = profile.sequence_parallel_default if sequence is None else sequence
    micro, accumulation, _ = _batch(row, split["dp"])
    mode, layers = _recompute(row, profile)
    offloaded, away = fields.offload(fields.text(row, "offload"))
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
        recompute_layers=layers,
        offload=offloaded,
        offload_layers=away,
    )


def _expert_tp(row: Row, profile: Framework, split: Mapping[str, int]) -> int:
    """Tensor ranks of an expert: as stated, else as the profile does it where the ranks suffice."""
    stated = fields.count(row, "expert_tp")
    if stated:
        return stated
    enough = split["ep"] <= split["dp"] * split["cp"]
    return split["tp"] if profile.splits_experts_by_tensor and enough else 1


def _cluster(row: Row, gpu: Gpu, gpus: int) -> Cluster:
    """Nodes as the row says, links as its words say; the catalog's for that GPU otherwise."""
    per_node = fields.count(row, "gpus_per_node") or min(gpu.gpus_per_node, gpus)
    words = fields.text(row, "interconnect_inter")
    rate = fields.link_bytes_per_s(words, per_node) if words else None
    base = lookup.cluster(gpu.name, gpus_per_node=per_node, inter_bytes_per_s=rate, max_gpus=gpus)
    base = replace(base, inter_link=words[:60], inter_known=rate is not None)
    intra = str(row.get("interconnect_intra", "") or "").strip()
    if fields.is_pcie_only(intra):
        return replace(base, nvlink_domain_gpus=1, intra_bytes_per_s=gpu.pcie_bytes_per_s)
    return replace(base, nvlink_domain_gpus=72) if "nvl72" in intra.lower() else base
