"""Words and numbers of published tables: free text a person wrote, read into the engine's values.

Nothing here is specific to a source; what cannot be read is None, the caller's default.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from rightsizer.domain.layout import Offload, Sharding
from rightsizer.domain.workload import (
    AttentionKernel,
    LossKernel,
    Method,
    Optimizer,
    Precision,
    Quantiser,
    Recompute,
    Scaling,
)
from rightsizer.errors import UnsupportedError

__all__ = [
    "attention",
    "count",
    "exchanges",
    "flag",
    "is_pcie_only",
    "link_bytes_per_s",
    "lora_targets",
    "loss",
    "method",
    "number",
    "offload",
    "optimizer",
    "precision",
    "quantised_bits",
    "recompute",
    "released",
    "sharding",
    "text",
]

_MISSING = {"", "nan", "null", "na", "n/a", "-", "--", "?", "unknown"}
_LAYERS = re.compile(r"(\d{1,4})\s*layers")
_TRUE, _FALSE = {"1", "1.0", "true", "yes", "y", "on"}, {"0", "0.0", "false", "no", "n", "off"}
_LARGEST = 1e12
_EXCHANGES = {
    "overlap_tensor": "overlaps_tensor_parallel",
    "overlap_experts": "overlaps_expert_exchange",
    "overlap_gradients": "overlaps_gradient_reduce",
    "fp8_gather": "gathers_fp8_weights",
}
_CALENDAR_VERSION = re.compile(r"\b(2[0-9])\.(0[1-9]|1[0-2])\b")
_NIC_GBPS = (
    (r"connect-?x-?8|cx-?8|\bxdr\b", 800.0),
    (r"connect-?x-?7|cx-?7|\bndr\b", 400.0),
    (r"connect-?x-?6|cx-?6|\bhdr\b|slingshot", 200.0),
    (r"connect-?x-?5|cx-?5|\bedr\b|omni-?path", 100.0),
    (r"\bfdr\b", 56.0),
    (r"nvidia connec", 400.0),
    (r"giga? ?(bit )?ethernet", 1.0),
)
_RATE = re.compile(
    r"(?:(\d{1,3})\s*(?:x|\*|-way)\s*[^,;()]{0,48}?)?(\d{1,5}(?:\.\d{1,3})?)\s*(gb/s|gbps|gb/sec|gbit/s|gb|g\b)",
    re.I,
)
_NICS = re.compile(r"(\d{1,3})\s*(?:x|\*)\s", re.I)


def text(row: Mapping[str, str], name: str) -> str:
    """A cell as stripped text; "" when absent or a word for missing."""
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
    """The framework's release as a year with fraction: a calendar version (26.04), else the year's column."""
    year, found = number(row, "year"), _CALENDAR_VERSION.search(text(row, "framework"))
    exact = 2000 + int(found.group(1)) + (int(found.group(2)) - 1) / 12 if found else year
    return exact if abs(exact - year) <= 1 or not year else year


def count(row: Mapping[str, str], name: str, default: int = 0) -> int:
    """A cell as a whole number (published tables hold 8.0 and 8), rounded up."""
    return math.ceil(number(row, name, float(default)) - 1e-9)


def flag(row: Mapping[str, str], name: str) -> bool | None:
    """A cell as yes, no or not stated."""
    value = text(row, name).lower()
    if value in _TRUE:
        return True
    return False if value in _FALSE else None


def exchanges(row: Mapping[str, str]) -> dict[str, Any]:
    """Facts of a framework that a row states of its exchanges: hidden behind compute, or in 8 bits."""
    stated = {fact: flag(row, column) for column, fact in _EXCHANGES.items()}
    return {fact: value for fact, value in stated.items() if value is not None}


def recompute(words: str) -> tuple[Recompute, int] | None:
    """(mode, layers recomputed per stage; 0 = all), or None if not stated."""
    words = words.lower()
    if not words:
        return None
    if words.startswith(("full", "all", "block", "uniform")):
        found = _LAYERS.search(words)
        return Recompute.FULL, int(found.group(1)) if found else 0
    if words.startswith(("selective", "sel", "op")):
        return Recompute.SELECTIVE, 0
    return (Recompute.NONE, 0) if words in _FALSE or words.startswith(("no", "none")) else (Recompute.FULL, 0)


def sharding(words: str) -> tuple[Sharding, int]:
    """(what is sharded, ranks of a shard group; 0 = all data-parallel ranks, -1 = one node)."""
    words = words.lower()
    group = re.search(r"within (\d{1,6})", words)
    ranks = int(group.group(1)) if group else 0
    if "no_shard" in words or not words:
        return Sharding.NONE, 0
    if "hsdp" in words or "hybrid" in words:
        return Sharding.HSDP, ranks or -1
    if "shard_grad_op" in words:
        return Sharding.ZERO2, ranks
    stage = re.search(r"zero[ -]?(?:stage[ -]?)?([0-3])", words)
    if stage:
        return Sharding(int(stage.group(1))), ranks
    if "fsdp" in words or "full_shard" in words:
        return Sharding.ZERO3, ranks
    return (Sharding.ZERO1, ranks) if "distributed" in words or "optimizer" in words else (Sharding.NONE, 0)


def offload(words: str) -> tuple[Offload, int]:
    """(what is kept in host memory, layers per stage whose activations are; 0 = all)."""
    words = words.lower()
    found = Offload.NONE
    for sign, part in (
        ("opt", Offload.OPTIMIZER),
        ("param", Offload.PARAMETERS),
        ("activation", Offload.ACTIVATIONS),
    ):
        if sign in words:
            found |= part
    if not found and "cpu" in words:
        found = Offload.OPTIMIZER | Offload.PARAMETERS
    layers = _LAYERS.search(words)
    return found, int(layers.group(1)) if layers and found & Offload.ACTIVATIONS else 0


def optimizer(words: str) -> Optimizer:
    """The optimizer by its bytes: 8-bit and 4-bit Adam, SGD, Adafactor, Lion, Muon, or Adam."""
    words = words.lower()
    if re.search(r"8-?bit|4-?bit", words):
        return Optimizer.ADAMW_8BIT
    for sign in (Optimizer.MUON, Optimizer.ADAFACTOR, Optimizer.LION):
        if sign.value in words:
            return sign
    return Optimizer.SGD if words.startswith("sgd") or words == "momentum" else Optimizer.ADAMW


def method(words: str) -> Method:
    """Pre-training, full fine-tuning, adapters, or adapters on a quantised base."""
    words = words.lower()
    if "qlora" in words or "q-lora" in words:
        return Method.QLORA
    if words in {"", "none"} or words.startswith(("pretrain", "pre-train", "train", "scratch", "continued")):
        return Method.PRETRAIN
    return Method.FINETUNE if words.startswith(("full", "fine", "sft")) else Method.LORA


def precision(words: str) -> Precision:
    """The matmuls' precision; bf16 when not stated."""
    words = words.lower()
    for sign, found in (
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
        if sign in words:
            return found
    return Precision.BF16


def attention(words: str) -> AttentionKernel:
    """Flash, SDPA or materialised scores."""
    words = words.lower()
    if words in _TRUE or "flash" in words or words.startswith("fa"):
        return AttentionKernel.FLASH if words not in _FALSE else AttentionKernel.EAGER
    if words in _FALSE or "eager" in words:
        return AttentionKernel.EAGER
    return AttentionKernel.SDPA if "sdpa" in words else AttentionKernel.AUTO


def loss(words: str) -> LossKernel:
    """The cross-entropy's kind."""
    words = words.lower()
    for sign, found in (
        ("chunk", LossKernel.CHUNKED),
        ("liger", LossKernel.FUSED),
        ("fused", LossKernel.FUSED),
        ("compile", LossKernel.COMPILED),
        ("jit", LossKernel.COMPILED),
        ("eager", LossKernel.EAGER),
    ):
        if sign in words:
            return found
    return LossKernel.AUTO


def lora_targets(words: str) -> str:
    """Where adapters sit: on the attention or on all matrices, with "+embeddings" where these train whole."""
    words = words.lower()
    if words in {"", "none"}:
        return ""
    everywhere = re.search(r"all|mlp|gate|up_proj|down_proj|linear|w[123]|fc[12]", words)
    whole = re.search(r"embed|lm_?head|wte", words)
    return ("all" if everywhere else "attention") + ("+embeddings" if whole else "")


def quantiser(words: str) -> Quantiser:
    """Who unpacks quantised weights; bitsandbytes where it is not said."""
    return Quantiser.GPTQ if "gptq" in words.lower() else Quantiser.BITSANDBYTES


def scaling(words: str) -> Scaling:
    """What of an 8-bit matmul's operand shares a scale; all of it where it is not said."""
    return Scaling.ROW if "row" in words.lower() else Scaling.TENSOR


def quantised_bits(words: str) -> int:
    """Bits of a quantised base: 4 unless the words say 8 ("int8", "8") or another number."""
    found = re.search(r"[2-8]", words)
    return int(found.group(0)) if found else 4


def is_pcie_only(words: str) -> bool:
    """Whether GPUs of one node meet on PCIe alone."""
    words = words.lower()
    linked = re.search(r"nv-?link|nv-?switch|xgmi|infinity fabric", words) and "no nvlink" not in words
    return bool(words) and not linked and ("pcie" in words or "none" in words)


def link_bytes_per_s(words: str, gpus_per_node: int) -> float | None:
    """Bytes per second and GPU between nodes from words such as "4x InfiniBand HDR per node (800 Gb/s)".

    A total is per node when it says so, counts NICs, or is larger than any single NIC (1,000 Gb/s); otherwise
    one such NIC serves each GPU. Storage, management and PCIe clauses are left out.
    """
    clause = _compute_clause(words)
    gbps = _gbps_per_node(clause, gpus_per_node)
    return None if gbps is None else gbps / 8.0 * 1e9 / max(1, gpus_per_node)


def _compute_clause(words: str) -> str:
    """The clause about the compute network, without storage, management and the host's own bus."""
    clauses = [c for c in re.split(r"[;,+]| and ", words) if c.strip()]
    compute = [c for c in clauses if re.search(r"compute|\bew\b|gpu fabric", c, re.I)]
    rest = [c for c in clauses if not re.search(r"storage|management|pcie|\bns\b|nic:", c, re.I)]
    fast = [c for c in rest if re.search(r"infiniband|\bib\b|roce|rdma", c, re.I)]
    return ", ".join(compute or fast or rest)


def _gbps_per_node(clause: str, gpus_per_node: int) -> float | None:
    """Gigabits per second that leave one node."""
    per_gpu = re.search(r"per gpu|/gpu", clause, re.I)
    found = _RATE.search(clause)
    nics = _NICS.search(clause)
    if not found:
        each = next((rate for sign, rate in _NIC_GBPS if re.search(sign, clause, re.I)), None)
        return None if each is None else each * (int(nics.group(1)) if nics else gpus_per_node)
    rate = float(found.group(2)) * (8.0 if _is_bytes(found.group(3), clause) else 1.0)
    if per_gpu:
        return rate * gpus_per_node
    stated_total = re.search(r"per node|/node|\befa\b", clause, re.I) or rate >= 1000.0
    before = clause[: found.start(2)]
    if found.group(1) and not (stated_total and before.count("(") > before.count(")")):
        return rate * int(found.group(1))
    if stated_total or "ethernet" in clause.lower():
        return rate
    return rate * (int(nics.group(1)) if nics else gpus_per_node)


def _is_bytes(unit: str, clause: str) -> bool:
    """Network gear is sold in gigabits; "GB/s" with a capital B on InfiniBand means bytes."""
    return unit == "GB/s" and not re.search(r"ethernet", clause, re.I)
