"""What it runs on: GPUs, nodes, links. Rates are the vendor's dense peaks; what is achieved is the estimates' matter."""

from dataclasses import dataclass, field

__all__ = ["Cluster", "Gpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator. Zero means the part does not have it (fp8 on A100, NVLink on an L40S)."""

    name: str
    architecture: str
    compute_capability: float
    memory_bytes: float
    memory_bytes_per_s: float
    bf16_flop_per_s: float
    fp16_flop_per_s: float
    fp8_flop_per_s: float
    fp4_flop_per_s: float
    tf32_flop_per_s: float
    fp32_flop_per_s: float
    nvlink_bytes_per_s: float
    pcie_bytes_per_s: float
    tdp_w: float
    streaming_multiprocessors: int
    consumer: bool = False
    gpus_per_node: int = 8
    price_usd_per_gpu_h: float | None = None
    aliases: tuple[str, ...] = field(default=(), metadata={"column": False})
    source: str = field(default="", metadata={"column": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """GPUs of one type, in nodes of one shape. Link rates are per GPU and direction.

    `nvlink_domain_gpus` is the reach of the fast link (8 in an HGX node, 72 in an NVL72 rack, 1 without NVLink).
    """

    gpu: Gpu = field(metadata={"column": False})
    gpus_per_node: int
    nvlink_domain_gpus: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    inter_link: str = ""
    inter_known: bool = False
    max_gpus: int = 16384
    price_usd_per_gpu_h: float | None = None
