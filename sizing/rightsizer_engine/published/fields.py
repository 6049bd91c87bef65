"""Parse the cells of published tables (free text) into the engine's values.

No rule is specific to one source. An unreadable cell gives None or the default.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from rightsizer_engine.domain.layout import Offload, Sharding
from rightsizer_engine.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Quantiser,
    Recompute,
    ScaleGranularity,
)
from rightsizer_engine.errors import UnsupportedError

_MISSING = {"", "nan", "null", "na", "n/a", "-", "--", "?", "unknown"}
_LAYERS = re.compile(r"(\d{1,4})\s*layers")
_SHARE = re.compile(
    r"(?:alpha|share|ratio)\s*[=:]?\s*(\d{0,3}\.?\d{1,6})(?!\s*%)|(\d{1,3}(?:\.\d{1,3})?)\s*%"
)
_TRUE, _FALSE = {"1", "1.0", "true", "yes", "y", "on"}, {"0", "0.0", "false", "no", "n", "off"}
_LARGEST = 1e12
_AT_LEAST_ONE = frozenset({
    *("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab", "seq_len", "gpus"),
    *("gpus_per_node", "dp", "tp", "pp", "vpp", "cp", "ep", "micro_batch", "global_batch", "grad_accum"),
})  # fmt: skip
"""Columns in which no run has a 0: a table that leaves one out leaves the cell empty."""
_EXCHANGES = {
    "overlap_tensor": "overlaps_tensor_parallel",
    "overlap_experts": "overlaps_expert_exchange",
    "overlap_gradients": "overlaps_gradient_reduce",
    "fp8_gather": "gathers_fp8_weights",
}
_CALENDAR_VERSION = re.compile(r"\b(2[0-9])\.(0[1-9]|1[0-2])\b")


def text(row: Mapping[str, str], name: str) -> str:
    """A cell as stripped text; "" when it is absent or marked as missing ("n/a", "-")."""
    value = str(row.get(name, "") or "").strip()
    return "" if value.lower() in _MISSING else value


def number(row: Mapping[str, str], name: str, default: float = 0.0) -> float:
    """A cell as a finite, non-negative number; `default` when it is missing."""
    value = text(row, name)
    if value.lower() in {"", "none"}:
        return default
    try:
        result = float(value.replace(",", "").replace("_", ""))
    except ValueError:
        raise UnsupportedError(f"{name}: {value[:40]!r} is not a number") from None
    if math.isnan(result):
        return default
    if not 0.0 <= result <= _LARGEST:
        raise UnsupportedError(f"{name}: {value[:40]!r} is outside 0 to {_LARGEST:.0e}")
    return result


def released(row: Mapping[str, str]) -> float:
    """The framework's release as a fractional year: its calendar version (26.04), else the column `year`."""
    year, version = number(row, "year"), _CALENDAR_VERSION.search(text(row, "framework"))
    exact = 2000 + int(version.group(1)) + (int(version.group(2)) - 1) / 12 if version else year
    return exact if abs(exact - year) <= 1 or not year else year


def count(row: Mapping[str, str], name: str, default: int = 0) -> int:
    """A cell as a whole number, rounded up (tables hold 8.0 and 8); `default` when it is missing."""
    stated = number(row, name, math.nan)
    if math.isnan(stated):
        return default
    if stated < 1 and name in _AT_LEAST_ONE:
        raise UnsupportedError(f"{name}: {text(row, name)[:40]!r} is below 1; leave out what is not known")
    return math.ceil(stated - 1e-9)


def flag(row: Mapping[str, str], name: str) -> bool | None:
    """A cell as true, false or None (not stated)."""
    value = text(row, name).lower()
    if value in _TRUE:
        return True
    return False if value in _FALSE else None


def exchanges(row: Mapping[str, str]) -> dict[str, Any]:
    """Framework fields that the row states: which communication is overlapped, and whether it uses 8 bits."""
    stated = {fact: flag(row, column) for column, fact in _EXCHANGES.items()}
    return {fact: value for fact, value in stated.items() if value is not None}


def recompute(cell: str) -> tuple[Recompute, int] | None:
    """(mode, layers recomputed per stage; 0 = all), or None if not stated."""
    cell = cell.lower()
    if not cell:
        return None
    if cell.startswith(("full", "all", "block", "uniform")):
        layers = _LAYERS.search(cell)
        return Recompute.FULL, int(layers.group(1)) if layers else 0
    if cell.startswith(("selective", "sel", "op")):
        return Recompute.SELECTIVE, 0
    return (Recompute.NONE, 0) if cell in _FALSE or cell.startswith(("no", "none")) else (Recompute.FULL, 0)


def recomputes_modules(cell: str) -> bool:
    """True if "selective" names modules (norms, activations, experts, up-projections), not only attention."""
    cell = cell.lower()
    named = re.search(r"norm|\bact\b|moe|mlp|expert|up_proj", cell)
    return cell.startswith("sel") and named is not None


def sharding(cell: str) -> tuple[Sharding, int]:
    """(sharding, ranks per shard group; 0 = all data-parallel ranks, -1 = one node)."""
    cell = cell.lower()
    group = re.search(r"within (\d{1,6})", cell)
    ranks = int(group.group(1)) if group else 0
    if "no_shard" in cell or not cell:
        return Sharding.NONE, 0
    if "hsdp" in cell or "hybrid" in cell:
        return Sharding.HSDP, ranks or -1
    if "shard_grad_op" in cell:
        return Sharding.ZERO2, ranks
    stage = re.search(r"zero[ -]?(?:stage[ -]?)?([0-3])", cell)
    if stage:
        return Sharding(int(stage.group(1))), ranks
    if "fsdp" in cell or "full_shard" in cell:
        return Sharding.ZERO3, ranks
    return (Sharding.ZERO1, ranks) if "distributed" in cell or "optimizer" in cell else (Sharding.NONE, 0)


def offload(cell: str, stage_layers: float) -> tuple[Offload, int]:
    """(the states in host memory, percent of the activations that are; 0 = all).

    A share of the activations is stated as "alpha=0.25", "share 0.25", "25 %" or "10 layers" of a stage.
    """
    cell = cell.lower()
    parts = Offload.NONE
    for sign, part in (
        ("opt", Offload.OPTIMIZER),
        ("param", Offload.PARAMETERS),
        ("activation", Offload.ACTIVATIONS),
    ):
        if sign in cell:
            parts |= part
    if not parts and "cpu" in cell:
        parts = Offload.OPTIMIZER | Offload.PARAMETERS
    share = _offloaded_share(cell, stage_layers) if parts & Offload.ACTIVATIONS else 1.0
    percent = round(100 * share)
    return (parts, percent % 100) if percent else (parts & ~Offload.ACTIVATIONS, 0)


def _offloaded_share(cell: str, stage_layers: float) -> float:
    """The stated share of the activations, from 0 to 1; all if not stated."""
    layers, stated = _LAYERS.search(cell), _SHARE.search(cell)
    if layers:
        return min(int(layers.group(1)) / stage_layers, 1.0)
    if not stated:
        return 1.0
    share = float(stated.group(1) or stated.group(2)) / (100.0 if stated.group(2) else 1.0)
    if share > 1:
        raise UnsupportedError(f"offload: {cell[:40]!r} is not a share from 0 to 1")
    return share


def optimizer(cell: str) -> Optimizer:
    """The optimizer, which sets the bytes per parameter; AdamW by default. 4-bit Adam counts as 8-bit."""
    cell = cell.lower()
    if re.search(r"8-?bit|4-?bit", cell):
        return Optimizer.ADAMW_8BIT
    for sign in (Optimizer.MUON, Optimizer.ADAFACTOR, Optimizer.LION):
        if sign.value in cell:
            return sign
    return Optimizer.SGD if cell.startswith("sgd") or cell == "momentum" else Optimizer.ADAMW


def method(cell: str) -> Method:
    """Pre-training, full fine-tuning, LoRA or QLoRA."""
    cell = cell.lower()
    if "qlora" in cell or "q-lora" in cell:
        return Method.QLORA
    if cell in {"", "none"} or cell.startswith(("pretrain", "pre-train", "train", "scratch", "continued")):
        return Method.PRETRAIN
    return Method.FINETUNE if cell.startswith(("full", "fine", "sft")) else Method.LORA


def precision(cell: str) -> Precision:
    """The matmuls' precision; bf16 when not stated."""
    cell = cell.lower()
    for sign, kind in (
        ("fp4", Precision.NVFP4),
        ("fp8", Precision.FP8),
        ("mxfp", Precision.FP8),
        ("float8", Precision.FP8),
        ("bf16", Precision.BF16),
        ("bfloat", Precision.BF16),
        ("fp16", Precision.FP16),
        ("half", Precision.FP16),
        ("tf32", Precision.FP32),
        ("fp32", Precision.FP32),
        ("float32", Precision.FP32),
    ):
        if sign in cell:
            return kind
    return Precision.BF16


_KERNELS = (
    (r"flash[ _-]?attn?(ention)?[ _-]?v?([1-4])\b|\bfa[ _-]?v?([1-4])\b|\bflash[ _-]?v?([1-4])\b", None),
    (r"transformer[ _-]?engine|\bte\b|cudnn", AttentionKernel.CUDNN),
    (r"triton", AttentionKernel.FLASH_1),
    (r"sdpa|scaled[ _-]dot", AttentionKernel.SDPA),
    (r"eager|\bmath\b|unfused", AttentionKernel.EAGER),
    (r"flash|\bfa\b", AttentionKernel.FLASH),
)
"""Signs of attention kernels, tried in order; None: the generation that the sign holds."""


def attention(cell: str) -> AttentionKernel:
    """The attention kernel: a flag for flash or eager, or its name ("FA2", "flash_attention_3", "TE")."""
    cell = cell.lower()
    if cell in _TRUE | _FALSE:
        return AttentionKernel.FLASH if cell in _TRUE else AttentionKernel.EAGER
    for sign, kernel in _KERNELS:
        found = re.search(sign, cell)
        if found and kernel is None:
            return AttentionKernel(f"flash{next(g for g in found.groups()[1:] if g)}")
        if found and kernel is not None:
            return kernel
    return AttentionKernel.AUTO


def loss(cell: str) -> LossKernel:
    """The kernel of the cross-entropy loss."""
    cell = cell.lower()
    for sign, kind in (
        ("liger", LossKernel.FUSED),
        ("fused", LossKernel.FUSED),
        ("cut", LossKernel.FUSED),
        ("chunk", LossKernel.CHUNKED),
        ("compile", LossKernel.COMPILED),
        ("jit", LossKernel.COMPILED),
        ("eager", LossKernel.EAGER),
    ):
        if sign in cell:
            return kind
    return LossKernel.AUTO


def lora_targets(cell: str) -> str:
    """The adapted matrices: "attention" or "all", with "+experts" and, trained in full, "+embeddings"."""
    cell = cell.lower()
    if cell in {"", "none"}:
        return ""
    everywhere = re.search(r"all|mlp|gate|up_proj|down_proj|linear|w[123]|fc[12]", cell)
    found = ["all" if everywhere else "attention"]
    found += ["experts"] if re.search(r"(?<!no )expert", cell) else []
    found += ["embeddings"] if re.search(r"embed|lm_?head|wte", cell) else []
    return "+".join(found)


def quantiser(cell: str) -> Quantiser:
    """The library that dequantises the weights; bitsandbytes when not stated."""
    return Quantiser.GPTQ if "gptq" in cell.lower() else Quantiser.BITSANDBYTES


def scaling(cell: str) -> ScaleGranularity:
    """The granularity of an 8-bit operand's scales: per row or, when not stated, per tensor."""
    return ScaleGranularity.ROW if "row" in cell.lower() else ScaleGranularity.TENSOR


def quantised_bits(cell: str) -> int:
    """Bits of a quantised base: the first digit from 2 to 8 ("int8", "8"), else 4."""
    digit = re.search(r"[2-8]", cell)
    return int(digit.group(0)) if digit else 4
