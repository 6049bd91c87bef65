"""Rules of thumb beside the engine, as docs/faq.md shows them: rules_of_thumb.py compute|memory|scaling."""

import math
import sys
from collections.abc import Iterator, Sequence

import rightsizer
from rightsizer_engine.catalog.gpus import gpu
from rightsizer_engine.catalog.models import model
from rightsizer_engine.units import parse_duration_s, parse_tokens

MFU = 0.4
"""Of the 16-bit peak, as the rule has it."""
STATE_BYTES = 16
"""For each parameter: weights and gradients in 16 bits, weights and Adam's two moments in 32."""
LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
DEADLINES = {  # case: model, tokens, deadline, GPU, sequence length (None: the recipe's)
    "1B, 100B tokens, 7d": ("meta-llama/Llama-3.2-1B", "100B", "7d", "H100", None),
    "8B, 1T tokens, 30d": (LLAMA_8B, "1T", "30d", "H100", None),
    "70B, 1T tokens, 30d": (LLAMA_70B, "1T", "30d", "H100", None),
    "8x7B, 300B tokens, 21d": ("mistralai/Mixtral-8x7B-v0.1", "300B", "21d", "H100", None),
    "671B, 14.8T tokens, 60d": ("deepseek-ai/DeepSeek-V3", "14.8T", "60d", "H800", None),
    "8B, 5B tokens of 128k, 3d": (LLAMA_8B, "5B", "3d", "H100", 131072),
}
MEMORY = {  # case: model, method, GPU, sequence length
    "1B, pretrain, H100": ("meta-llama/Llama-3.2-1B", "pretrain", "H100", None),
    "8B, pretrain, H100": (LLAMA_8B, "pretrain", "H100", None),
    "8B, 128k tokens, H100": (LLAMA_8B, "pretrain", "H100", 131072),
    "8B, finetune, A100": (LLAMA_8B, "finetune", "A100-SXM4-80GB", None),
    "70B, finetune, H100": (LLAMA_70B, "finetune", "H100", None),
    "8B, lora, RTX 4090": (LLAMA_8B, "lora", "RTX 4090", None),
    "70B, qlora, A100": (LLAMA_70B, "qlora", "A100-SXM4-80GB", None),
}
SIZES = (8, 64, 256, 1024, 2048)

Row = tuple[str, ...]


def compute() -> Iterator[Row]:
    """The GPUs of 6 N D at 40 % of the peak, and when so many would be done."""
    yield ("case", "rule", "in nodes", "done in", "late by", "plan", "MFU", "attention", "goodput")
    for case, (name, tokens, deadline, gpu_name, length) in DEADLINES.items():
        asked = {
            "model": name,
            "tokens": tokens,
            "gpu": gpu_name,
            "sequence_length": length,
            "calibrate": False,
        }
        within_s = parse_duration_s(deadline)
        flop = 6 * model(name).parameters_active * parse_tokens(tokens)
        rule = flop / (MFU * gpu(gpu_name).bf16_flop_per_s * within_s)
        node = 8 * math.ceil(rule / 8)
        ruled, sized = rightsizer.plan(gpus=node, **asked), rightsizer.plan(deadline=deadline, **asked)
        assert isinstance(sized, rightsizer.Plan)
        done_s = ruled.finish_seconds if isinstance(ruled, rightsizer.Plan) else math.inf
        said = f"{done_s / 86400:.1f}d" if math.isfinite(done_s) else "does not fit"
        late = f"{(done_s - within_s) / within_s:+.0%}" if math.isfinite(done_s) else ""
        assert sized.report.goodput is not None
        attention = sized.step.seconds_by_cause["attention"] / sized.step.seconds
        shares = (sized.step.mfu, attention, sized.report.goodput.goodput)
        told = (f"{share:.0%}" for share in shares)
        yield (case, f"{rule:,.1f}", f"{node:,}", said, late, f"{sized.gpus:,}", *told)


def memory() -> Iterator[Row]:
    """The GPUs that hold 16 bytes a parameter, and the fewest (1, 2, 4, ...) on which the run trains."""
    yield ("case", "16 bytes each", "GPUs", "trains on", "fullest GPU", "layout")
    for case, (name, method, gpu_name, length) in MEMORY.items():
        asked = {"model": name, "method": method, "gpu": gpu_name, "sequence_length": length}
        sizes = (rightsizer.plan(gpus=2**k, tokens="100M", calibrate=False, **asked) for k in range(8))
        found = next(size for size in sizes if isinstance(size, rightsizer.Plan))
        ruled = STATE_BYTES * model(name).parameters_total / 2**30
        ruled_gpus = math.ceil(ruled / found.step.memory_limit_gib)
        means = (found.report.layout_text or "").split("; ")[0].split(", done")[0]
        full = f"{found.step.memory_gib:.0f} GiB"
        yield (case, f"{ruled:.0f} GiB", f"{ruled_gpus}", f"{found.gpus}", full, means)


def scaling() -> Iterator[Row]:
    """8B on 100B tokens: what twice the GPUs save."""
    yield ("GPUs", "done in", "of linear", "GPU-hours", "MFU")
    base = 0.0
    for gpus in SIZES:
        found = rightsizer.plan(
            model=LLAMA_8B, tokens="100B", gpu="H100", gpus=gpus, framework="megatron", calibrate=False
        )
        assert isinstance(found, rightsizer.Plan)
        hours = found.finish_seconds * gpus / 3600
        base = base or hours
        days = found.finish_seconds / 86400
        yield (f"{gpus:,}", f"{days:.2f}d", f"{base / hours:.0%}", f"{hours:,.0f}", f"{found.step.mfu:.0%}")


def table(rows: Sequence[Row]) -> str:
    """Columns of equal width."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    sys.stdout.write(
        table([*{"compute": compute, "memory": memory, "scaling": scaling}[sys.argv[1]]()]) + "\n"
    )
