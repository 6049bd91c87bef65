"""Options that several commands share; each sets the plan field of its name in `rightsizer_api.short_names`.

Quantities stay text here: the plan's parser reads them, with the same errors for a flag as for a manifest.
"""

from pathlib import Path
from typing import Annotated

import typer

from rightsizer.values import immutable
from rightsizer_cli import completion

__all__ = [
    "FixedLayoutFlags",
    "GoalFlags",
    "HardwareFlags",
    "JobFlags",
    "Json",
    "LayoutFlags",
    "NoCalibration",
    "PlanFile",
]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

NoCalibration = Annotated[
    bool,
    typer.Option(
        "--no-calibration", help="Ignore the calibration from your own runs (`rightsizer calibrate --show`)."
    ),
]

PlanFile = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="TrainingPlan manifest; options override its fields.")
]


@immutable
class JobFlags:
    """What is trained, and how."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Model: a name of `rightsizer models`, a Hub id, or a folder with a config.json.",
            autocompletion=completion.models,
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Hugging Face config.json of a model that is not in the catalog."),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            help="pretrain (default), finetune (sft, full), dpo, lora or qlora.",
            autocompletion=completion.choices("pretrain", "finetune", "lora", "qlora"),
        ),
    ] = None
    tokens: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Tokens to train on: 100B, 1.5T, 4M."),
    ] = None
    examples: Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Examples of the data set, instead of --tokens: 52k."),
    ] = None
    example_length: Annotated[
        int | None,
        typer.Option(metavar="N", help="Tokens of an example (default: the sequence length)."),
    ] = None
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Count the tokens of a .jsonl, .txt or .parquet file, at 4 bytes of text a token.",
        ),
    ] = None
    epochs: Annotated[
        float | None,
        typer.Option(metavar="N", help="Passes over the data set (default 1)."),
    ] = None
    sequence_length: Annotated[
        int | None,
        typer.Option(
            "--sequence-length",
            "--seq-len",
            metavar="N",
            help="Tokens in a sequence (default: 8192; 2048 when fine-tuning).",
        ),
    ] = None
    global_batch: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Tokens in a step over all GPUs (default: from the compute budget, or 64 sequences).",
        ),
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            "--precision",
            "--dtype",
            metavar="TYPE",
            help="bf16, fp16, fp8, nvfp4 or fp32; default: the model's own or bf16.",
            autocompletion=completion.choices("bf16", "fp16", "fp8", "nvfp4", "fp32"),
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="adamw (default), adamw8bit, sgd, adafactor, lion or muon.",
            autocompletion=completion.choices("adamw", "adamw8bit", "sgd", "adafactor", "lion", "muon"),
        ),
    ] = None
    recompute: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="Activations recomputed in backward: auto, none, selective or full.",
            autocompletion=completion.choices("auto", "none", "selective", "full"),
        ),
    ] = None
    reference_model: Annotated[
        bool | None,
        typer.Option(
            "--reference-model/--no-reference-model",
            help="A frozen copy of the model reads each sequence too, as in DPO.",
        ),
    ] = None
    lora_rank: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rank of the adapters (lora, qlora; default 16)."),
    ] = None
    lora_targets: Annotated[
        str | None,
        typer.Option(
            metavar="WHICH",
            help="Matrices with adapters: attention (usual), all or all+experts.",
            autocompletion=completion.choices("attention", "all", "all+experts"),
        ),
    ] = None
    quantised_bits: Annotated[
        int | None,
        typer.Option(
            "--quantised-bits",
            "--quantized-bits",
            metavar="N",
            help="Bits of a frozen weight (qlora; default 4).",
        ),
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL",
            help="Cross-entropy: auto, eager, compiled, fused or chunked.",
            autocompletion=completion.choices("auto", "eager", "compiled", "fused", "chunked"),
        ),
    ] = None
    attention: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL",
            help="Attention: auto, flash, flash1 to flash4, cudnn, sdpa or eager.",
            autocompletion=completion.choices(
                "auto", "flash", "flash1", "flash2", "flash3", "flash4", "cudnn", "sdpa", "eager"
            ),
        ),
    ] = None
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Whether the model is compiled; default: as the framework does."
        ),
    ] = None
    library_version: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="When the framework was released: 2025-06 or 25.06."),
    ] = None
    framework: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The training framework (`rightsizer frameworks`); default: the best for it.",
            autocompletion=completion.frameworks,
        ),
    ] = None


@immutable
class GoalFlags:
    """By when, how surely, for how much, on how many GPUs."""

    deadline: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Finish within: 72h, 3d, 1h30m."),
    ] = None
    finish_by: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Finish by a date and time: 2027-03-01T08:00:00Z."),
    ] = None
    confidence: Annotated[
        float | None,
        typer.Option(metavar="P", help="Probability with which the deadline must hold (default 0.9)."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Most the run may cost: 60000, $60k."),
    ] = None
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="gpus|cost|time",
            help="What is minimised within the limits (default gpus).",
            autocompletion=completion.choices("gpus", "cost", "time"),
        ),
    ] = None
    max_gpus: Annotated[int | None, typer.Option(metavar="N", help="Most GPUs to use.")] = None
    min_gpus: Annotated[int | None, typer.Option(metavar="N", help="Fewest GPUs to use.")] = None
    gpus: Annotated[
        int | None,
        typer.Option(metavar="N", help="Exact number of GPUs, instead of the fewest."),
    ] = None
    spare_nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="Spare nodes that replace failed ones; default: the engine chooses."),
    ] = None


@immutable
class HardwareFlags:
    """What it may run on."""

    gpu: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="GPU type (`rightsizer gpus`), several: A,B; or one cloud node type.",
            autocompletion=completion.gpus,
        ),
    ] = None
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Exact number of nodes, instead of --gpus.")
    ] = None
    gpus_per_node: Annotated[int | None, typer.Option(metavar="N", help="GPUs in a node.")] = None
    node_shape: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Cloud node type, which fixes network and price.",
            autocompletion=completion.nodes,
        ),
    ] = None
    inter_node_gbps: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Between nodes, per GPU and direction: 400Gbps, 50GB/s, 50 (GB/s), NDR200 or 4x NDR200.",
        ),
    ] = None
    intra_node_gbps: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="Between GPUs of a node, per direction: 450GB/s or PCIe4 x8."),
    ] = None
    gpu_power_watts: Annotated[
        int | None,
        typer.Option(metavar="W", help="Power limit of a GPU (a superchip in all); default: its own power."),
    ] = None
    price: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Price of a GPU-hour; default: the list price."),
    ] = None


@immutable
class FixedLayoutFlags:
    """Degrees of parallelism that the plan keeps; the others are searched."""

    dp: Annotated[int | None, typer.Option(metavar="N", help="Fixed data-parallel ranks.")] = None
    tp: Annotated[int | None, typer.Option(metavar="N", help="Fixed tensor-parallel ranks.")] = None
    pp: Annotated[int | None, typer.Option(metavar="N", help="Fixed pipeline stages.")] = None
    vpp: Annotated[int | None, typer.Option(metavar="N", help="Fixed virtual stages of a pipeline rank.")] = (
        None
    )
    cp: Annotated[int | None, typer.Option(metavar="N", help="Fixed context-parallel ranks.")] = None
    ep: Annotated[int | None, typer.Option(metavar="N", help="Fixed expert-parallel ranks.")] = None
    micro_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Fixed sequences in a forward pass.")
    ] = None


@immutable
class LayoutFlags:
    """One layout, for `estimate`."""

    gpus: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="GPUs; by default dp x tp x pp x cp.")
    ] = None
    dp: Annotated[int | None, typer.Option(metavar="N", min=1, help="Data-parallel ranks.")] = None
    tp: Annotated[int, typer.Option(metavar="N", min=1, help="Tensor-parallel ranks.")] = 1
    pp: Annotated[int, typer.Option(metavar="N", min=1, help="Pipeline stages.")] = 1
    vpp: Annotated[int, typer.Option(metavar="N", min=1, help="Virtual stages on each pipeline rank.")] = 1
    cp: Annotated[int, typer.Option(metavar="N", min=1, help="Context-parallel ranks.")] = 1
    ep: Annotated[int, typer.Option(metavar="N", min=1, help="Expert-parallel ranks.")] = 1
    micro_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences in a forward pass.")] = 1
    sharding: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="none, zero1, zero2, zero3 (FSDP) or hsdp.",
            autocompletion=completion.choices("none", "zero1", "zero2", "zero3", "hsdp"),
        ),
    ] = None
