"""A layout as each framework's arguments, environment and files. Pure.

Tests check the names against torchtitan 0.3, Megatron-LM (megatron-core 0.16), DeepSpeed 0.19 and Accelerate
1.15. A layout that a framework cannot run is refused, never changed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import field

from rightsizer_engine.catalog.framework_names import framework_named
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.layout import Layout, Offload, Sharding
from rightsizer_engine.domain.workload import Precision, Recompute, Workload
from rightsizer_engine.errors import InputError, UnsupportedError
from rightsizer_engine.values import immutable


@immutable
class FrameworkFlags:
    """A framework's settings for a layout; `files` maps a name in the run's directory to its text."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def flags(
    framework: str,
    layout: Layout,
    workload: Workload,
    *,
    architecture: Architecture | None = None,
    directory: str = ".",
) -> FrameworkFlags:
    """The flags of `framework` for one layout of one workload.

    Interleaved pipelines need `architecture`, to count layers. `directory` will contain `files`. Every
    framework also gets `RIGHTSIZER_*`, which the in-job agent reads.
    """
    emitter = _EMITTERS.get(framework_named(framework).name)
    if emitter is None:
        remedy = "is sized only: state the layout in the command by placeholders such as {layout.tp}"
        raise InputError("launch.framework", value=framework, remedy=remedy)
    own = emitter(layout, workload, architecture, directory)
    shared = _layout_environment(layout, workload)
    if architecture is not None:
        shared |= _model_environment(architecture)
    return FrameworkFlags(arguments=own.arguments, environment={**shared, **own.environment}, files=own.files)


def is_launched(framework: str) -> bool:
    """Whether a layout's flags are known for this framework; the others are sized only."""
    return framework_named(framework).name in _EMITTERS


def resizes_in_place(framework: str) -> bool:
    """Whether workers may change their number without new arguments: no flag contains it."""
    return _EMITTERS.get(framework_named(framework).name) in {_ddp, _custom}


def _layout_environment(layout: Layout, workload: Workload) -> dict[str, str]:
    """The layout and the workload as `RIGHTSIZER_*` variables."""
    named: dict[str, object] = {
        "LAYOUT_DP": layout.dp,
        "LAYOUT_TP": layout.tp,
        "LAYOUT_PP": layout.pp,
        "LAYOUT_VPP": layout.vpp,
        "LAYOUT_CP": layout.cp,
        "LAYOUT_EP": layout.ep,
        "LAYOUT_SHARDING": Sharding(layout.sharding).name.lower(),
        "LAYOUT_MICRO_BATCH": layout.micro_batch,
        "LAYOUT_MICRO_BATCHES": layout.micro_batches,
        "LAYOUT_RECOMPUTE": Recompute(layout.recompute).name.lower(),
        "TOKENS": int(workload.tokens),
        "SEQUENCE_TOKENS": workload.sequence_tokens,
        "GLOBAL_BATCH_SEQUENCES": workload.global_batch_sequences,
        "PRECISION": str(workload.precision),
    }
    return {f"RIGHTSIZER_{key}": str(value) for key, value in named.items()}


def _model_environment(architecture: Architecture) -> dict[str, str]:
    """The model's dimensions as `RIGHTSIZER_MODEL_*`, so that a script need not repeat them."""
    names = ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab")
    return {f"RIGHTSIZER_MODEL_{name.upper()}": str(getattr(architecture, name)) for name in names}


def _arguments(options: Mapping[str, object]) -> tuple[str, ...]:
    """`--key value` pairs; True is a bare flag, None and False are left out."""
    arguments: list[str] = []
    for key, value in options.items():
        if value is True:
            arguments.append(f"--{key}")
        elif value is not None and value is not False:
            arguments += [f"--{key}", str(value)]
    return tuple(arguments)


def _refuse(framework: str, layout: Layout, **supported: bool) -> None:
    for setting, fine in supported.items():
        if not fine:
            raise UnsupportedError(f"{framework} cannot run {setting} of this layout: {layout}")


def _shards(layout: Layout) -> tuple[int, int]:
    """(replicas, shard ranks) of the data-parallel group."""
    if layout.sharding < Sharding.ZERO3:
        return layout.dp, 1
    if layout.sharding is Sharding.HSDP and layout.shard_group:
        shard = max(1, layout.shard_group // layout.cp)
        return layout.dp // shard, shard
    return 1, layout.dp


def _torchtitan(
    layout: Layout, workload: Workload, model: Architecture | None, _directory: str
) -> FrameworkFlags:
    """torchtitan: fields of TrainingConfig and ParallelismConfig; recompute is a tyro subcommand at the end.

    Its local batch is a data-parallel rank's share of a step; with pipelines, of all micro-batches.
    """
    _refuse(
        "torchtitan", layout, expert_tp=layout.expert_tp in {1, layout.tp}, offload=layout.offload in {0, 3}
    )
    replicas, shard = _shards(layout)
    piped = layout.pp > 1
    options: dict[str, object] = {
        "training.local_batch_size": layout.micro_batch * (layout.micro_batches if piped else 1),
        "training.global_batch_size": workload.global_batch_sequences,
        "training.seq_len": workload.sequence_tokens,
        "training.steps": int(workload.steps),
        "training.mixed_precision_param": "float32" if workload.precision is Precision.FP32 else None,
        "parallelism.data_parallel_replicate_degree": replicas,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.tensor_parallel_degree": layout.tp,
        "parallelism.pipeline_parallel_degree": layout.pp,
        "parallelism.context_parallel_degree": layout.cp,
        "parallelism.expert_parallel_degree": layout.ep,
        "training.enable_cpu_offload": layout.offload != Offload.NONE,
    }
    if piped:
        options["training.disable_cuda_graphs"] = True  # on by default, and refused with pipelines
        options["parallelism.pipeline_parallel_microbatch_size"] = layout.micro_batch
        options["parallelism.pipeline_parallel_schedule"] = "Interleaved1F1B" if layout.vpp > 1 else "1F1B"
    if layout.vpp > 1:
        options["parallelism.pipeline_parallel_layers_per_stage"] = _layers_per_chunk(layout, _layers(model))
    recompute = {Recompute.NONE: "none", Recompute.SELECTIVE: "selective", Recompute.FULL: "full"}
    return FrameworkFlags(
        arguments=(*_arguments(options), f"activation-checkpoint:{recompute[Recompute(layout.recompute)]}")
    )


def _layers(model: Architecture | None) -> int:
    return 0 if model is None else model.layers


def _layers_per_chunk(layout: Layout, layers: int) -> int:
    chunks = layout.pp * layout.vpp
    if layers < chunks:
        raise InputError(
            "layers", value=layers, remedy=f"an interleaved pipeline needs at least {chunks} layers"
        )
    return -(-layers // chunks)


def _megatron(
    layout: Layout, workload: Workload, model: Architecture | None, _directory: str
) -> FrameworkFlags:
    """Megatron-LM: pretrain_gpt.py's arguments, which come from megatron-core's config classes.

    Tensor-parallel and expert exchange run beside compute wherever it allows that; the engine counts on it.
    """
    _refuse("Megatron-LM", layout, offload=layout.offload in {Offload.NONE, Offload.OPTIMIZER})
    full = layout.recompute is Recompute.FULL
    stages = _stage_layout(layout, _layers(model))
    sharding = {
        Sharding.ZERO2: "optim_grads",
        Sharding.ZERO3: "optim_grads_params",
        Sharding.HSDP: "optim_grads_params",
    }.get(Sharding(layout.sharding))
    replicas, _ = _shards(layout)
    options: dict[str, object] = {
        "tensor-model-parallel-size": layout.tp,
        "pipeline-model-parallel-size": layout.pp,
        "num-virtual-stages-per-pipeline-rank": layout.vpp if layout.vpp > 1 and not stages else None,
        "pipeline-model-parallel-layout": stages,
        "context-parallel-size": layout.cp,
        "expert-model-parallel-size": layout.ep,
        "expert-tensor-parallel-size": layout.expert_tp if layout.ep > 1 else None,
        "sequence-parallel": layout.sequence_parallel and layout.tp > 1,
        "tp-comm-overlap": layout.sequence_parallel and layout.tp > 1,
        "overlap-moe-expert-parallel-comm": layout.ep > 1 and (layout.pp == 1 or layout.vpp > 1) and not full,
        "use-distributed-optimizer": layout.sharding is Sharding.ZERO1 or sharding is not None,
        "use-megatron-fsdp": sharding is not None,
        "data-parallel-sharding-strategy": sharding,
        "num-distributed-optimizer-instances": replicas if layout.sharding is Sharding.HSDP else None,
        "optimizer-cpu-offload": bool(layout.offload & Offload.OPTIMIZER),
        "micro-batch-size": layout.micro_batch,
        "global-batch-size": workload.global_batch_sequences,
        "seq-length": workload.sequence_tokens,
        "train-iters": int(workload.steps),
        "recompute-granularity": {Recompute.FULL: "full", Recompute.SELECTIVE: "selective"}.get(
            layout.recompute
        ),
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": (layout.recompute_layers or 1) if full else None,
        "bf16": workload.precision in {Precision.BF16, Precision.FP8, Precision.NVFP4},
        "fp16": workload.precision is Precision.FP16,
        "fp8-format": "hybrid" if workload.precision is Precision.FP8 else None,
        "activation-func-fp8-input-store": workload.precision is Precision.FP8 and model and model.gated_mlp,
    }
    return FrameworkFlags(arguments=_arguments(options))


def _stage_layout(layout: Layout, layers: int) -> str | None:
    """Stages of unequal numbers of layers: E embeds, t is a layer, L is head and loss. None: equal ones.

    Embedding and head count as a layer each where that makes the stages equal; else the last ones are short.
    """
    chunks = layout.pp * layout.vpp
    if layout.pp == 1 or layers < chunks or layers % chunks == 0:
        return None
    ends = (layers + 2) % chunks == 0
    total = layers + 2 if ends else layers
    sizes = [total // chunks + (index < total % chunks) for index in range(chunks)]
    if ends:
        sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] - 1
    return "E" + "|".join("t" * size for size in sizes) + "L"


def _deepspeed(
    layout: Layout, workload: Workload, _model: Architecture | None, directory: str
) -> FrameworkFlags:
    """DeepSpeed: two arguments and a JSON file, whose batch is micro-batch x steps x data ranks."""
    _refuse("DeepSpeed", layout, cp=layout.cp == 1, vpp=layout.vpp == 1)
    stage = {Sharding.HSDP: 3}.get(Sharding(layout.sharding), int(layout.sharding))
    zero: dict[str, object] = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True}
    if layout.sharding is Sharding.HSDP and layout.shard_group:
        zero["zero_hpz_partition_size"] = layout.shard_group
    if layout.offload & Offload.OPTIMIZER:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if layout.offload & Offload.PARAMETERS:
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    config: dict[str, object] = {
        "train_batch_size": layout.micro_batch * layout.micro_batches * layout.dp,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": layout.micro_batches,
        "zero_optimization": zero,
        "bf16": {"enabled": workload.precision is Precision.BF16},
        "fp16": {"enabled": workload.precision is Precision.FP16},
    }
    if layout.tp > 1:
        config["tensor_parallel"] = {"autotp_size": layout.tp}
    name = "deepspeed.json"
    return FrameworkFlags(
        arguments=("--deepspeed", "--deepspeed_config", f"{directory}/{name}"),
        files={name: json.dumps(config, indent=2) + "\n"},
    )


def _accelerate(
    layout: Layout, workload: Workload, _model: Architecture | None, _directory: str
) -> FrameworkFlags:
    """Accelerate under torchrun: the variables of `accelerate launch --use_fsdp --fsdp_version 2`."""
    _refuse("Accelerate", layout, pp=layout.pp == 1, ep=layout.ep == 1)
    precision = {Precision.FP32: "no"}.get(workload.precision, str(workload.precision))
    environment = {"ACCELERATE_MIXED_PRECISION": precision}
    environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] = str(layout.micro_batches)
    sharded = layout.sharding >= Sharding.ZERO2
    if sharded:
        environment |= {
            "ACCELERATE_USE_FSDP": "true",
            "FSDP_VERSION": "2",
            "FSDP_RESHARD_AFTER_FORWARD": "true" if layout.sharding >= Sharding.ZERO3 else "false",
            "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
            "FSDP_STATE_DICT_TYPE": "SHARDED_STATE_DICT",
            "FSDP_OFFLOAD_PARAMS": "true" if layout.offload & Offload.PARAMETERS else "false",
            "FSDP_ACTIVATION_CHECKPOINTING": "true" if layout.recompute is Recompute.FULL else "false",
        }
    if layout.tp * layout.cp > 1 or layout.sharding is Sharding.HSDP:
        replicas, shard = _shards(layout)
        environment |= {
            "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
            "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": str(replicas),
            "PARALLELISM_CONFIG_DP_SHARD_SIZE": str(shard),
            "PARALLELISM_CONFIG_TP_SIZE": str(layout.tp),
            "PARALLELISM_CONFIG_CP_SIZE": str(layout.cp),
        }
    return FrameworkFlags(environment=environment)


def _ddp(layout: Layout, _workload: Workload, _model: Architecture | None, _directory: str) -> FrameworkFlags:
    _refuse(
        "plain DDP",
        layout,
        tp=layout.tp == 1,
        pp=layout.pp == 1,
        cp=layout.cp == 1,
        sharding=not layout.sharding,
    )
    return FrameworkFlags()


def _custom(
    _layout: Layout, _workload: Workload, _model: Architecture | None, _directory: str
) -> FrameworkFlags:
    return FrameworkFlags()


_Emitter = Callable[[Layout, Workload, Architecture | None, str], FrameworkFlags]

_EMITTERS: Mapping[str, _Emitter] = {
    "torchtitan": _torchtitan,
    "megatron": _megatron,
    "megatron-core": _megatron,
    "deepspeed-zero": _deepspeed,
    "hf-trainer": _accelerate,
    "hf-liger": _accelerate,
    "peft": _accelerate,
    "trl": _accelerate,
    "axolotl": _accelerate,
    "llama-factory": _accelerate,
    "unsloth": _accelerate,
    "ms-swift-2": _accelerate,
    "ms-swift-3": _accelerate,
    "trl-2025": _accelerate,
    "ddp": _ddp,
    "nanogpt": _ddp,
    "nanochat": _ddp,
    "fsdp1": _custom,
    "fsdp2": _custom,
    "unknown": _custom,
}
"""The emitter of each launched profile. A script wraps its model in DDP or FSDP itself."""
