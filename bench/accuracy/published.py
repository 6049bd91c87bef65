"""Well-known tables that publish FLOP rates instead of step times, as rows of the reference schema.

Narayanan et al. 2021 (arXiv:2104.04473) Tables 1 and 2: TFLOP/s per GPU by its equation 3, 96 B s l h^2
(1 + s/6h + V/16lh), which counts full recomputation. Table 1 does not print micro-batches and chunks;
those here are the largest that the batch, the layers and the memory of an 80 GB card allow and are an
assumption. Llama 3 (arXiv:2407.21783) Table 4: 6 N and full attention (as PaLM counts, the paper does not
say), without recomputation; chunks are assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_SELENE = {
    "year": "2021",
    "framework": "Megatron-LM",
    "gpu": "A100-SXM4-80GB",
    "gpus_per_node": "8",
    "interconnect_intra": "NVLink",
    "interconnect_inter": "8x HDR InfiniBand per node",
    "vocab": "51200",
    "gated_mlp": "0",
    "tied_embeddings": "1",
    "seq_len": "2048",
    "precision": "fp16",
    "recompute": "full",
    "flash_attention": "0",
    "method": "pretrain",
    "sp": "0",
    "cp": "1",
}
# layers, hidden, heads, gpus, tp, pp, vpp, micro-batch, batch, TFLOP/s per GPU
_TABLE_1 = (
    (24, 2304, 24, 32, 1, 1, 1, 16, 512, 137),
    (30, 3072, 32, 64, 2, 1, 1, 16, 512, 138),
    (36, 4096, 32, 128, 4, 1, 1, 16, 512, 142),
    (40, 6144, 48, 256, 8, 1, 1, 8, 1024, 135),
    (48, 8192, 64, 512, 8, 2, 2, 4, 1536, 138),
    (60, 10240, 80, 1024, 8, 4, 3, 2, 1792, 140),
    (80, 12288, 96, 1536, 8, 8, 2, 2, 2304, 148),
    (96, 16384, 128, 1920, 8, 16, 3, 1, 2160, 155),
    (105, 20480, 128, 2520, 8, 35, 3, 1, 2520, 163),
    (128, 25600, 160, 3072, 8, 64, 1, 1, 3072, 163),
)
_TABLE_2_PIPELINE = (
    (96, 12288, 96, 384, 8, 12, 1, 1, 1536, 153),
    (96, 12288, 96, 768, 8, 12, 1, 1, 1536, 149),
    (96, 12288, 96, 1536, 8, 12, 1, 1, 1536, 141),
    (105, 20480, 128, 560, 8, 35, 1, 1, 2240, 171),
    (105, 20480, 128, 1120, 8, 35, 1, 1, 2240, 167),
    (105, 20480, 128, 2240, 8, 35, 1, 1, 2240, 159),
)
_TABLE_2_ZERO3 = (
    (96, 12288, 96, 384, 1, 1, 1, 4, 1536, 144),
    (96, 12288, 96, 768, 1, 1, 1, 2, 1536, 88),
    (96, 12288, 96, 1536, 1, 1, 1, 1, 1536, 44),
    (105, 20480, 128, 640, 1, 1, 1, 4, 2560, 138),
    (105, 20480, 128, 1120, 1, 1, 1, 2, 2240, 98),
    (105, 20480, 128, 2240, 1, 1, 1, 1, 2240, 48),
)
# gpus, cp, sequence, batch, TFLOP/s per GPU
_LLAMA_3 = ((8192, 1, 8192, 2048, 430), (16384, 1, 8192, 2048, 400), (16384, 16, 131072, 128, 380))
_LLAMA_3_MATMUL_PARAMETERS = 403.8e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One row of a table: its inputs in the reference schema, and the step time its FLOP rate means."""

    table: str
    row: Mapping[str, str]
    step_s: float


def published() -> tuple[Published, ...]:
    """Every row."""
    found = [_narayanan("SC21 Table 1", line, zero3=False) for line in _TABLE_1]
    found += [_narayanan("SC21 Table 2 PTD", line, zero3=False) for line in _TABLE_2_PIPELINE]
    found += [_narayanan("SC21 Table 2 ZeRO-3", line, zero3=True) for line in _TABLE_2_ZERO3]
    return (*found, *(_llama(*line) for line in _LLAMA_3))


def _narayanan(table: str, line: tuple[int, ...], *, zero3: bool) -> Published:
    layers, hidden, heads, gpus, tp, pp, vpp, micro, batch, tflops = line
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": heads}
    shape |= {"head_dim": hidden // heads, "ffn_hidden": 4 * hidden, "gpus": gpus, "tp": tp, "pp": pp}
    shape |= {"vpp": vpp, "dp": gpus // tp // pp, "micro_batch": micro, "global_batch": batch}
    s, vocab = 2048, 51200
    flop = 96 * batch * s * layers * hidden**2 * (1 + s / 6 / hidden + vocab / 16 / layers / hidden)
    how = (
        {"framework": "DeepSpeed", "zero_stage_or_fsdp": "zero3"} if zero3 else {"zero_stage_or_fsdp": "ddp"}
    )
    text = {name: str(value) for name, value in shape.items()}
    return Published(table=table, row=_SELENE | text | how, step_s=flop / (tflops * 1e12 * gpus))


def _llama(gpus: int, cp: int, sequence: int, batch: int, tflops: int) -> Published:
    row = {
        "year": "2024", "framework": "Meta internal (4D parallelism)", "model_name": "Llama-3.1-405B",
        "layers": "126", "hidden": "16384", "ffn_hidden": "53248", "heads": "128", "kv_heads": "8",
        "head_dim": "128", "vocab": "128256", "gated_mlp": "1", "tied_embeddings": "0",
        "seq_len": str(sequence), "gpu": "H100-SXM5-80GB", "gpus": str(gpus), "gpus_per_node": "8",
        "interconnect_intra": "NVLink", "interconnect_inter": "RoCE 400 Gb/s per GPU", "tp": "8", "pp": "16",
        "vpp": "8", "cp": str(cp), "dp": str(gpus // 128 // cp), "sp": "1", "zero_stage_or_fsdp": "zero1",
        "micro_batch": "1", "global_batch": str(batch), "precision": "bf16", "recompute": "none",
        "flash_attention": "1", "method": "pretrain",
    }  # fmt: skip
    flop_per_token = 6 * _LLAMA_3_MATMUL_PARAMETERS + 12 * 126 * 16384 * sequence
    step_s = flop_per_token * batch * sequence / (tflops * 1e12 * gpus)
    return Published(table="Llama-3 405B Table 4", row=row, step_s=step_s)
