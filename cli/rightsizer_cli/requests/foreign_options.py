"""Names of options in other tools, and what stands for them here."""

from collections.abc import Collection

_NO_EFFECT = "changes no size; leave it out"
_BATCH = "use --global-batch, in tokens a step: 512 sequences of 8192 are 4M"
_MEANT: dict[str, tuple[str, str]] = {
    "--batch-size --global-batch-size --global-batch-tokens --train-batch-size --gbs": (
        "--global-batch",
        _BATCH,
    ),
    "--gradient-accumulation-steps --grad-accum --accumulate-grad-batches": (
        "--global-batch",
        "follows from --global-batch and --micro-batch",
    ),
    "--steps --max-steps --num-steps --train-iters --iterations": (
        "--tokens",
        "use --tokens: steps times the tokens of a step",
    ),
    "--days --hours --weeks --time --time-limit --walltime --duration": (
        "--deadline",
        "use --deadline, such as 3d",
    ),
    "--params --parameters --num-params --model-size": (
        "--model",
        "name a --model (`rightsizer models`), or a --config; a manifest takes plain dimensions",
    ),
    "--zero --zero-stage --zero-opt --fsdp --sharding": (
        "--framework",
        "the plan chooses the sharding; --framework (ddp, fsdp2, deepspeed) limits it",
    ),
    "--lora --use-lora --peft --use-peft": ("--method", "use --method lora"),
    "--load-in-4bit --load-in-8bit --qlora --use-qlora": (
        "--method",
        "use --method qlora --quantized-bits 4",
    ),
    "--bf16 --fp16 --fp8": ("--precision", "use --precision bf16, fp16 or fp8"),
    "--spot --preemptible": ("--price", "give the rate that you pay: --price 2.5"),
    "--format --output-format": ("--output", "use --output yaml, or --json"),
    "--verbose -v --debug": ("--tokens", "`rightsizer explain` says more, with the same options"),
    "--lr --learning-rate --weight-decay --warmup-steps --warmup-ratio --seed --lr-scheduler-type": (
        "--tokens",
        _NO_EFFECT,
    ),
    "--lora-alpha --lora-dropout --logging-steps --save-steps --eval-steps --output-dir --report-to": (
        "--tokens",
        _NO_EFFECT,
    ),
}
"""Names -> the option that a command must have for this to hold, and what to say."""
_RENAMED = {
    "--gpus": "--num-gpus --n-gpus --ngpus --gpu-count --world-size",
    "--nodes": "--num-nodes --nnodes",
    "--gpu": "--gpu-type --gpu-types --accelerator --accelerators --instance-type --machine-type",
    "--max-gpus": "--max-nodes",
    "--micro-batch": "--micro-batch-size --mbs --per-device-train-batch-size --per-gpu-batch-size",
    "--sequence-length": "--context-length --max-seq-len --max-seq-length --seq-length --context "
    "--max-length --max-context-length --cutoff-len --block-size --sequence-len --model-max-length",
    "--examples": "--samples --num-samples --train-samples",
    "--epochs": "--num-train-epochs --num-epochs",
    "--model": "--model-name --model-name-or-path --base-model --model-id -m",
    "--tp": "--tensor-parallel-size --tensor-model-parallel-size --tensor-parallel",
    "--pp": "--pipeline-parallel-size --pipeline-model-parallel-size --pipeline-parallel",
    "--cp": "--context-parallel-size --context-parallel",
    "--ep": "--expert-parallel-size --expert-model-parallel-size --expert-parallel",
    "--dp": "--data-parallel-size --data-parallel",
    "--recompute": "--gradient-checkpointing --grad-checkpointing --activation-checkpointing",
    "--precision": "--mixed-precision",
    "--quantized-bits": "--bits --quantization",
    "--lora-rank": "--lora-r --rank",
    "--optimizer": "--optim",
    "--attention": "--flash-attn --use-flash-attn --attn-implementation",
    "--budget": "--max-cost --max-budget",
    "--price": "--gpu-price --price-per-gpu-hour",
}


def remedy(typed: str, known: Collection[str]) -> str:
    """Our option in place of another tool's, for a command with the known ones; empty if none."""
    name = typed.partition("=")[0].lower().replace("_", "-")
    if name in known:
        return f"use {name}"
    for ours, theirs in _RENAMED.items():
        if ours in known and name in theirs.split():
            return f"use {ours}"
    for names, (needed, said) in _MEANT.items():
        if needed in known and name in names.split():
            return said
    return ""
