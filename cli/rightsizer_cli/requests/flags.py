"""The flags of a request, in groups; each sets the field of its name in `rightsizer_api.short_names`.

Quantities stay text here: the plan's parser reads them, with the same errors for a flag as for a manifest.
Commands show these groups as options (`commands.option_groups`), the page as fields, `import rightsizer` as
keywords.
"""

from pathlib import Path
from typing import Annotated

from rightsizer_cli.requests import completion
from rightsizer_cli.requests.completion import Completion
from rightsizer_engine.values import immutable


@immutable
class Flag:
    """The spelling and help of a flag. `names` are its spellings where its field's name is not enough."""

    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    complete: Completion | None = None


@immutable
class JobFlags:
    """The job and its settings."""

    model: Annotated[
        str | None,
        Flag(
            metavar="NAME",
            help="Model: a name of `rightsizer models`, a Hub id, or a folder with a config.json.",
            complete=completion.models,
        ),
    ] = None
    config: Annotated[
        Path | None,
        Flag(metavar="FILE", help="Hugging Face config.json of a model that is not in the catalog."),
    ] = None
    method: Annotated[
        str | None,
        Flag(
            metavar="METHOD",
            help="pretrain (default), finetune (sft, full), dpo, lora or qlora.",
            complete=completion.choices("pretrain", "finetune", "lora", "qlora"),
        ),
    ] = None
    tokens: Annotated[
        str | None,
        Flag(metavar="COUNT", help="Tokens to train on: 100B, 1.5T, 4M."),
    ] = None
    examples: Annotated[
        str | None,
        Flag(metavar="COUNT", help="Examples of the data set, instead of --tokens: 52k."),
    ] = None
    example_length: Annotated[
        int | None,
        Flag(metavar="N", help="Tokens of an example (default: the sequence length)."),
    ] = None
    dataset: Annotated[
        Path | None,
        Flag(
            metavar="FILE",
            help="Count the tokens of a .jsonl, .txt or .parquet file, at 4 bytes of text a token.",
        ),
    ] = None
    epochs: Annotated[
        float | None,
        Flag(metavar="N", help="Passes over the data set (default 1)."),
    ] = None
    sequence_length: Annotated[
        int | None,
        Flag(
            names=(
                "--sequence-length",
                "--seq-len",
            ),
            metavar="N",
            help="Tokens in a sequence (default: 8192; 2048 when fine-tuning).",
        ),
    ] = None
    global_batch: Annotated[
        str | None,
        Flag(
            metavar="COUNT",
            help="Tokens in a step over all GPUs (default: from the compute budget, or 64 sequences).",
        ),
    ] = None
    precision: Annotated[
        str | None,
        Flag(
            names=(
                "--precision",
                "--dtype",
            ),
            metavar="TYPE",
            help="bf16, fp16, fp8, nvfp4 or fp32; default: the model's own or bf16.",
            complete=completion.choices("bf16", "fp16", "fp8", "nvfp4", "fp32"),
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Flag(
            metavar="NAME",
            help="adamw (default), adamw8bit, sgd, adafactor, lion or muon.",
            complete=completion.choices("adamw", "adamw8bit", "sgd", "adafactor", "lion", "muon"),
        ),
    ] = None
    recompute: Annotated[
        str | None,
        Flag(
            metavar="MODE",
            help="Activations recomputed in backward: auto, none, selective or full.",
            complete=completion.choices("auto", "none", "selective", "full"),
        ),
    ] = None
    reference_model: Annotated[
        bool | None,
        Flag(
            names=("--reference-model/--no-reference-model",),
            help="A frozen copy of the model reads each sequence too, as in DPO.",
        ),
    ] = None
    lora_rank: Annotated[
        int | None,
        Flag(metavar="N", help="Rank of the adapters (lora, qlora; default 16)."),
    ] = None
    lora_targets: Annotated[
        str | None,
        Flag(
            metavar="WHICH",
            help="Matrices with adapters: attention (usual), all or all+experts.",
            complete=completion.choices("attention", "all", "all+experts"),
        ),
    ] = None
    quantised_bits: Annotated[
        int | None,
        Flag(
            names=(
                "--quantised-bits",
                "--quantized-bits",
            ),
            metavar="N",
            help="Bits of a frozen weight (qlora; default 4).",
        ),
    ] = None
    loss: Annotated[
        str | None,
        Flag(
            metavar="KERNEL",
            help="Cross-entropy: auto, eager, compiled, fused or chunked.",
            complete=completion.choices("auto", "eager", "compiled", "fused", "chunked"),
        ),
    ] = None
    attention: Annotated[
        str | None,
        Flag(
            metavar="KERNEL",
            help="Attention: auto, flash, flash1 to flash4, cudnn, sdpa or eager.",
            complete=completion.choices(
                "auto", "flash", "flash1", "flash2", "flash3", "flash4", "cudnn", "sdpa", "eager"
            ),
        ),
    ] = None
    compile: Annotated[
        bool | None,
        Flag(
            names=("--compile/--no-compile",),
            help="Whether the model is compiled; default: as the framework does.",
        ),
    ] = None
    library_version: Annotated[
        str | None,
        Flag(metavar="DATE", help="When the framework was released: 2025-06 or 25.06."),
    ] = None
    framework: Annotated[
        str | None,
        Flag(
            metavar="NAME",
            help="The training framework (`rightsizer frameworks`); default: the best for it.",
            complete=completion.frameworks,
        ),
    ] = None


@immutable
class GoalFlags:
    """Deadline, confidence, budget and number of GPUs."""

    deadline: Annotated[
        str | None,
        Flag(metavar="DURATION", help="Finish within: 72h, 3d, 1h30m."),
    ] = None
    finish_by: Annotated[
        str | None,
        Flag(metavar="TIME", help="Finish by a date and time: 2027-03-01T08:00:00Z."),
    ] = None
    confidence: Annotated[
        float | None,
        Flag(metavar="P", help="Probability with which the deadline must hold (default 0.9)."),
    ] = None
    budget: Annotated[
        str | None,
        Flag(metavar="USD", help="Most the run may cost: 60000, $60k."),
    ] = None
    objective: Annotated[
        str | None,
        Flag(
            metavar="gpus|cost|time",
            help="What is minimised within the limits (default gpus).",
            complete=completion.choices("gpus", "cost", "time"),
        ),
    ] = None
    max_gpus: Annotated[int | None, Flag(metavar="N", help="Most GPUs to use.")] = None
    min_gpus: Annotated[int | None, Flag(metavar="N", help="Fewest GPUs to use.")] = None
    gpus: Annotated[
        int | None,
        Flag(metavar="N", help="Exact number of GPUs, instead of the fewest."),
    ] = None
    spare_nodes: Annotated[
        int | None,
        Flag(metavar="N", help="Spare nodes that replace failed ones; default: the engine chooses."),
    ] = None


@immutable
class HardwareFlags:
    """The hardware that it may run on."""

    gpu: Annotated[
        list[str] | None,
        Flag(
            metavar="NAME",
            help="GPU type (`rightsizer gpus`), several: A,B; or one cloud node type.",
            complete=completion.gpus,
        ),
    ] = None
    nodes: Annotated[
        int | None, Flag(metavar="N", least=1, help="Exact number of nodes, instead of --gpus.")
    ] = None
    gpus_per_node: Annotated[int | None, Flag(metavar="N", help="GPUs in a node.")] = None
    node_shape: Annotated[
        str | None,
        Flag(
            metavar="NAME",
            help="Cloud node type, which fixes network and price.",
            complete=completion.nodes,
        ),
    ] = None
    inter_node_gbps: Annotated[
        str | None,
        Flag(
            metavar="RATE",
            help="Between nodes, per GPU and direction: 400Gbps, 50GB/s, 50 (GB/s), NDR200 or 4x NDR200.",
        ),
    ] = None
    intra_node_gbps: Annotated[
        str | None,
        Flag(metavar="RATE", help="Between GPUs of a node, per direction: 450GB/s or PCIe4 x8."),
    ] = None
    gpu_power_watts: Annotated[
        int | None,
        Flag(metavar="W", help="Power limit of a GPU (a superchip in all); default: its own power."),
    ] = None
    price: Annotated[
        str | None,
        Flag(metavar="USD", help="Price of a GPU-hour; default: the list price."),
    ] = None


@immutable
class FixedLayoutFlags:
    """Degrees of parallelism that the plan keeps; the others are searched."""

    dp: Annotated[int | None, Flag(metavar="N", help="Fixed data-parallel ranks.")] = None
    tp: Annotated[int | None, Flag(metavar="N", help="Fixed tensor-parallel ranks.")] = None
    pp: Annotated[int | None, Flag(metavar="N", help="Fixed pipeline stages.")] = None
    vpp: Annotated[int | None, Flag(metavar="N", help="Fixed virtual stages of a pipeline rank.")] = None
    cp: Annotated[int | None, Flag(metavar="N", help="Fixed context-parallel ranks.")] = None
    ep: Annotated[int | None, Flag(metavar="N", help="Fixed expert-parallel ranks.")] = None
    micro_batch: Annotated[int | None, Flag(metavar="N", help="Fixed sequences in a forward pass.")] = None


@immutable
class LayoutFlags:
    """One layout, for `estimate`."""

    gpus: Annotated[int | None, Flag(metavar="N", least=1, help="GPUs; by default dp x tp x pp x cp.")] = None
    dp: Annotated[int | None, Flag(metavar="N", least=1, help="Data-parallel ranks.")] = None
    tp: Annotated[int, Flag(metavar="N", least=1, help="Tensor-parallel ranks.")] = 1
    pp: Annotated[int, Flag(metavar="N", least=1, help="Pipeline stages.")] = 1
    vpp: Annotated[int, Flag(metavar="N", least=1, help="Virtual stages on each pipeline rank.")] = 1
    cp: Annotated[int, Flag(metavar="N", least=1, help="Context-parallel ranks.")] = 1
    ep: Annotated[int, Flag(metavar="N", least=1, help="Expert-parallel ranks.")] = 1
    micro_batch: Annotated[int, Flag(metavar="N", least=1, help="Sequences in a forward pass.")] = 1
    sharding: Annotated[
        str | None,
        Flag(
            metavar="KIND",
            help="none, zero1, zero2, zero3 (FSDP) or hsdp.",
            complete=completion.choices("none", "zero1", "zero2", "zero3", "hsdp"),
        ),
    ] = None


SLOWEST_TOKENS_PER_S, FASTEST_TOKENS_PER_S = 1e-3, 1e15
"""The rates that a job may have; any other number in a log is no rate."""


@immutable
class JobSource:
    """Which running job, and where its rate is."""

    kubernetes: Annotated[
        str, Flag(metavar="KIND/NAME", help="A Job, JobSet, TrainJob, PyTorchJob or RayJob.")
    ] = ""
    namespace: Annotated[
        str, Flag(names=("--namespace", "-n"), metavar="NAME", help="Default: your context's.")
    ] = ""
    context: Annotated[str, Flag(metavar="NAME", help="Context of your kubeconfig.")] = ""
    slurm: Annotated[int | None, Flag(metavar="JOBID", help="A running Slurm job.")] = None
    log: Annotated[
        Path | None,
        Flag(metavar="FILE", help="The job's log with its rate; - is stdin. Default: the pod's."),
    ] = None
    tokens_per_second: Annotated[
        float | None,
        Flag(
            metavar="RATE",
            least=SLOWEST_TOKENS_PER_S,
            most=FASTEST_TOKENS_PER_S,
            help="The whole job's rate, instead of a log.",
        ),
    ] = None
    tokens_done: Annotated[
        str | None, Flag(metavar="COUNT", help="Tokens trained so far. Default: from the log.")
    ] = None
    measured_over: Annotated[str, Flag(metavar="DURATION", help="How long the rate was measured.")] = "1h"
    checkpoint_every: Annotated[str, Flag(metavar="DURATION", help="Between its checkpoints.")] = "30m"

    @property
    def kubeconfig(self) -> str:
        """The file, as kubectl finds it."""
        return ""


@immutable
class ClusterFlags:
    """Which Kubernetes cluster and namespace; the same options as kubectl's."""

    namespace: Annotated[
        str, Flag(names=("--namespace", "-n"), metavar="NAME", help="Default: your context's.")
    ] = ""
    context: Annotated[str, Flag(metavar="NAME", help="Context of your kubeconfig.")] = ""
    kubeconfig: Annotated[str, Flag(metavar="FILE", help="Default: as kubectl finds it.")] = ""
