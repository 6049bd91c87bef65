"""Hardware: GPUs, nodes, links. Rates are the vendor's dense peaks, not what a run achieves."""

from dataclasses import field

from rightsizer_engine.values import immutable

MOST_GPUS = 32768
"""The most GPUs that a plan takes where nobody sets a limit: published runs on one cluster took up to 32K
(Llama 4 Behemoth, Meta's announcement of April 2025)."""


@immutable
class Gpu:
    """One accelerator of a process. Zero: the part does not have it (fp8 on A100, NVLink on L40S).

    `memory_bytes` is what the driver reports, hence what fits. Link rates are per direction.
    `compute_capability` is CUDA's (0 for other vendors). `nvlink_domain_gpus` is the reach of the fast link:
    8 in an HGX node, 72 in an NVL72 rack, 2 or 4 for bridged cards, 1 without. `inter_bytes_per_s` is a
    typical node's network per GPU.

    `peer_bytes_per_s` is the rate between cards without NVLink where it is not PCIe's: GeForce drivers allow
    no peer-to-peer, so data go through host memory. `tdp_w` includes the `host_w` of a superchip's CPU;
    `power_limit_w` is the limit that is set (0: the part's own). `matmul16_flop_per_s` and
    `matmul8_flop_per_s` are the largest matmuls that anyone measured, in 16 and 8 bits.
    """

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
    gpus_per_node: int = 8
    nvlink_domain_gpus: int = 1
    inter_bytes_per_s: float = 0.0
    peer_bytes_per_s: float = 0.0
    host_w: float = 0.0
    power_limit_w: float = 0.0
    matmul16_flop_per_s: float = 0.0
    matmul8_flop_per_s: float = 0.0
    price_usd_per_gpu_h: float | None = None
    aliases: tuple[str, ...] = field(default=(), metadata={"column": False})
    source: str = field(default="", metadata={"column": False})
    inter_source: str = field(default="", metadata={"column": False})
    price_source: str = field(default="", metadata={"column": False})
    notes: str = field(default="", metadata={"column": False})

    @property
    def runs_rocm(self) -> bool:
        """Whether it is AMD's: ROCm's drivers, RCCL, `amd.com/gpu`."""
        return self.architecture.startswith("cdna")

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice, which exchanges data with no other."""
        return "-MIG-" in self.name

    @property
    def power_w(self) -> float:
        """The power limit of the part: its own power, or the limit that is set."""
        return self.power_limit_w or self.tdp_w

    @property
    def sources(self) -> str:
        """The sources of all figures, in one line of text."""
        price = f"price: median of {self.price_source}" if self.price_source else "price: none published"
        return f"peaks: {self.source}; network: {self.inter_source}; {price}"


@immutable
class NodeShape:
    """One node shape to rent or buy, or of a machine.

    `inter_bytes_per_s` is per GPU and direction, `power_w` the limit set on a GPU (on a superchip in all);
    0 if not published.
    """

    provider: str
    name: str
    gpu: str
    gpus: int
    inter_bytes_per_s: float = 0.0
    power_w: float = 0.0
    price_usd_per_gpu_h: float | None = None
    price_date: str = field(default="", metadata={"column": False})
    source: str = field(default="", metadata={"column": False})


@immutable
class Cluster:
    """GPUs of one type, in nodes of one shape. Link rates are per GPU and direction.

    `nvlink_domain_gpus` is the reach of the fast link (8 in an HGX node, 72 in an NVL72 rack, 1 without
    NVLink); `intra_bytes_per_s` is that link's rate, PCIe's where there is none. `inter_known` says that the
    rate between nodes was stated, not taken from a typical node; `inter_link` says from which.
    """

    gpu: Gpu = field(metadata={"column": False})
    gpus_per_node: int
    nvlink_domain_gpus: int
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    inter_link: str = ""
    inter_known: bool = False
    max_gpus: int = MOST_GPUS
    price_usd_per_gpu_h: float | None = None
