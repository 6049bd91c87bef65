"""Framework profiles: facts about a framework's generation, never about a run.

The facts are in data/frameworks.json, each with its source. A profile that extends another lists differences.
"""

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import field, fields, replace
from functools import cache
from typing import Any

from rightsizer_engine import packaged
from rightsizer_engine.domain.workload import AttentionKernel, LossKernel, Recompute
from rightsizer_engine.errors import UnknownNameError
from rightsizer_engine.values import immutable

COMPILED_SINCE = 2025.0
"""Year from which torch's own trainers compile or fuse the loss: torchtitan's default, Liger-Kernel's first
release (August 2024), and fused optimizers (transformers' default)."""
_OTHERS_SINCE = 2023.0
"""Year before which tensor and pipeline parallelism beside ZeRO's stages meant Megatron on DeepSpeed."""


class KernelStyle(enum.IntEnum):
    """The kernels of element-wise work between matmuls: one kernel per torch op, hand-fused, or compiled."""

    EAGER = 0
    FUSED = 1
    COMPILED = 2


class SelectiveRecompute(enum.IntEnum):
    """Parts that "selective" recomputes: the attention core, cheap ops, named modules, or whole blocks."""

    ATTENTION_CORE = 0
    OPS = 1
    MODULES = 2
    BLOCKS = 3


class StageBalance(enum.IntEnum):
    """Layers of a stage: even, by cost with the head as layers, or embedding and head as one each."""

    EVEN = 0
    COST = 1
    ENDS = 2


@immutable
class Framework:
    """One framework generation's facts; `known` is False for the honest unknown one (wider intervals).

    Bytes are per parameter that a rank holds before any sharding. A name that ends in a precision is for that
    precision; the plain name is for bf16, and for fp8 where fp8's own is 0. `can_*` limits the search.

    - `flash_kernel`: the kernel that "flash" means. `prefers_cudnn_attention`: cuDNN on Blackwell, where
      torch would choose FlashAttention-2.
    - `expert_overlap_interleaves`: stages hide the experts' exchange only if they are interleaved.
    - `defers_group_reduce`: HSDP's groups all-reduce gradients with the last micro-batch only.
    - `first_stage_layers`, `last_stage_layers`: 0: as `stage_balance` divides the layers.
    - `moment_bytes`: one of Adam's two moments. `frozen_bytes`: a weight beneath adapters; 0: as trained.
    - `deferred_head_gradients`: micro-batches whose logit gradients wait for the end of the pipeline.
    - `interleaved_group`: micro-batches that pass a chunk before the next chunk; 0: as many as stages.
    """

    name: str
    known: bool = True
    family: str = ""

    # How it computes
    kernels: KernelStyle = KernelStyle.EAGER
    loss: LossKernel = LossKernel.EAGER
    time_class: str = "trainer"
    attention: AttentionKernel = AttentionKernel.SDPA
    flash_kernel: AttentionKernel = AttentionKernel.FLASH_2
    prefers_cudnn_attention: bool = False
    vocabulary_parallel_loss: bool = False
    dropout: bool = False
    dropout_with_plain_mlp: bool = False
    compiles_loss: bool = False
    fuses_adapters: bool = False
    fused_weight_gradients: bool = False
    groups_fp8_experts: bool = False

    # What it communicates
    gradient_reduce_bytes: float = 4.0
    weight_gather_bytes: float = 2.0
    gathers_fp8_weights: bool = False
    overlaps_gradient_reduce: bool = True
    overlaps_tensor_parallel: bool = False
    overlaps_backward_since: float = 2022.0
    overlaps_context_exchange: bool = True
    merges_context_parts: bool = False
    overlaps_expert_exchange: bool = False
    expert_overlap_interleaves: bool = False
    reduces_every_micro_batch: bool = False
    defers_group_reduce: bool = False
    scatters_gradients: bool = True
    sequence_parallel_default: bool = False
    stage_balance: StageBalance = StageBalance.EVEN
    first_stage_layers: int = 0
    last_stage_layers: int = 0

    # Bytes per parameter
    weight_bytes: float = 2.0
    weight_bytes_fp8: float = 2.0
    fp8_copy_bytes: float = 0.0
    fp8_transpose_bytes: float = 0.0
    gradient_bytes: float = 4.0
    gradient_bytes_fp16: float = 4.0
    gradient_bytes_fp8: float = 0.0
    master_bytes: float = 4.0
    master_bytes_fp16: float = 4.0
    moment_bytes: float = 4.0
    optimizer_temporary_bytes: float = 0.0
    fused_optimizer_since: float = 0.0
    double_quantises: bool = False
    unquantised_bytes: float = 2.0
    frozen_bytes: float = 0.0
    unsharded_layers: float = 0.0
    gathers_embeddings: bool = False
    bucket_bytes: float = 0.0
    te_dummy_gradients: bool = False
    persistent_gradients: bool = False

    # Saved for backward
    saves_gathered_inputs: bool = False
    keeps_stage_outputs: bool = False
    fp8_saved_inputs: bool = False
    fp8_saved_activations: bool = False
    fp8_saved_gates: bool = False
    score_bytes: float = 2.0
    casts_adapter_inputs: bool = False
    deferred_head_gradients: int = 0
    interleaved_group: int = 0

    # Recomputation
    selective: SelectiveRecompute = SelectiveRecompute.ATTENTION_CORE
    recomputes_expert_modules: bool = False
    default_recompute: Recompute = Recompute.NONE
    default_sharding: str = "none"

    # Its defaults
    sequence_tokens: int = 0
    pads_to_longest: bool = False
    lora_targets: str = "attention"
    splits_experts_by_tensor: bool = False

    # What it can do
    can_tensor_parallel: bool = False
    can_pipeline: bool = False
    can_interleave: bool = False
    can_stage_unevenly: bool = False
    can_context_parallel: bool = False
    can_expert_parallel: bool = False
    can_zero1: bool = False
    can_zero2: bool = False
    can_zero3: bool = False
    can_hsdp: bool = False
    can_offload_optimizer: bool = False
    can_offload_parameters: bool = False
    can_selective_recompute: bool = False
    can_pretrain: bool = True
    can_lora: bool = False
    can_qlora: bool = False
    can_fp8: bool = False

    sources: tuple[tuple[str, str], ...] = field(default=(), metadata={"column": False})


_SHARDING = ("deepspeed-zero", "fsdp2", "fsdp1")
"""Profiles of what shards the states of another framework's model."""
_COMPUTED = (
    "kernels", "loss", "time_class", "attention", "flash_kernel", "score_bytes", "compiles_loss",
    "fuses_adapters", "double_quantises", "frozen_bytes",
    "default_recompute", "pads_to_longest", "lora_targets",
    "sequence_tokens",
)  # fmt: skip
"""Facts of the trainer, whatever shards its states."""

_ENUMS: Mapping[str, Any] = {
    "kernels": KernelStyle,
    "loss": LossKernel,
    "attention": AttentionKernel,
    "flash_kernel": AttentionKernel,
    "selective": SelectiveRecompute,
    "stage_balance": StageBalance,
    "default_recompute": Recompute,
}


def framework(name: str) -> Framework:
    """The profile of that name, or of that launch name (megatron, deepspeed, accelerate, custom)."""
    raw, launch = _raw(), _data()["launch"]
    key = launch.get(name.strip().lower(), name.strip().lower())
    if key not in raw:
        raise UnknownNameError("framework", value=name, candidates=sorted({*launch, *raw}))
    return _profile(key)


def frameworks() -> tuple[Framework, ...]:
    """Every profile, the unknown ones last."""
    return tuple(sorted(map(_profile, _raw()), key=lambda f: (not f.known, f.name)))


def framework_from_text(text: str, *, year: float = 0.0) -> Framework | None:
    """The profile that a publication's framework text names, or None; `year` picks the generation.

    A trainer and what shards it ("HF Trainer + DeepSpeed") are one stack.
    """
    found = [
        _profile(profile)
        for pattern, profile, since, until in _patterns()
        if pattern.search(text) and (not year or since <= year < until)
    ]
    if not found:
        return None
    trainer = next((f for f in found if f.family == "trainer"), None)
    sharding = next((f for f in found if f.name in _SHARDING), None)
    if trainer is None or sharding is None or found[0] not in (trainer, sharding):
        return found[0]
    return sharded_trainer(trainer, sharding)


def sharded_trainer(trainer: Framework, sharding: Framework) -> Framework:
    """A trainer over DeepSpeed or FSDP: it computes as the trainer, and holds and exchanges as the other."""
    return replace(sharding, **{fact: getattr(trainer, fact) for fact in _COMPUTED})


def unknown_framework(
    *,
    model_parallel: bool,
    sharded: bool,
    adapters: bool,
    finetune: bool = False,
    zero: bool = False,
    intricate: bool = False,
    year: float = 0.0,
) -> Framework:
    """The profile of an unknown framework, from its layout and year.

    `zero`: sharding is given as a ZeRO stage (DeepSpeed, stacks on plain torch), not as that of Megatron's
    optimizer or FSDP; `intricate`: stages are interleaved or contexts split, which ZeRO stacks cannot do.
    `year` is the libraries' (0: today's).
    """
    if adapters:
        return framework("unknown-adapters")
    before = "-2024" if 0 < year < COMPILED_SINCE else ""
    if sharded and not zero:
        return framework(f"unknown-sharded{before}")
    if model_parallel and zero and not intricate:
        return framework("unknown-parallel-2022" if 0 < year < _OTHERS_SINCE else "unknown-parallel-zero")
    if model_parallel:
        return framework("unknown-parallel")
    if sharded:
        return framework(f"unknown-zero{before}")
    return framework("unknown-finetune" if finetune else "unknown")


def assumed_frameworks(*, decoder: bool, adapters: bool) -> tuple[Framework, ...]:
    """The stacks that an executor can launch for such a job, each with the uncertainty of an unknown one.

    Accelerate is left out of pretraining and full finetuning of decoders: its profile trains with 16-bit
    moments, which nobody asks for by naming no framework.
    """
    names = ("torchtitan", "megatron", "deepspeed") if decoder and not adapters else ("peft",)
    return tuple(replace(framework(name), known=False) for name in names)


@cache
def _data() -> Any:
    return json.loads(packaged.text("frameworks.json"))


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str, float, float], ...]:
    return tuple(
        (re.compile(p["match"], re.IGNORECASE), p["profile"], p.get("since", 0.0), p.get("until", 9999.0))
        for p in _data()["patterns"]
    )


@cache
def _raw() -> Mapping[str, Mapping[str, Any]]:
    return {p["name"]: p for p in _data()["profiles"]}


@cache
def _profile(name: str) -> Framework:
    """A profile with everything it inherits; a child's fact and source replace its parent's."""
    raw = _raw()
    facts: dict[str, Any] = {}
    sources: dict[str, str] = {}
    chain, at = [raw[name]], raw[name].get("extends")
    while at:
        chain.append(raw[at])
        at = raw[at].get("extends")
    for link in reversed(chain):
        facts |= {k: v for k, v in link.items() if k not in {"extends", "sources"}}
        sources |= link.get("sources", {})
    known = {f.name for f in fields(Framework)}
    values = {k: _member(k, v) if k in _ENUMS else v for k, v in facts.items() if k in known}
    return Framework(**values, sources=tuple(sorted(sources.items())))


def _member(fact: str, text: str) -> Any:
    """The member of that value or, where values are numbers, of that name."""
    kind = _ENUMS[fact]
    return kind(text) if issubclass(kind, str) else kind[text.upper()]
