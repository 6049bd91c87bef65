"""MIG slices: a part of one GPU with memory and multiprocessors of its own.

A slice is named as GPU Feature Discovery labels it: NVIDIA-A100-SXM4-80GB-MIG-1g.10gb, a GPU's name with the
profile. The driver divides most parts into 8 shares of memory and 8 of the multiprocessors, of which it gives
out 7 (NVIDIA's MIG user guide, "Supported MIG profiles"); the A30 into 4 and 4. `nvidia-smi mig -lgip` of an
H100-SXM5-80GB: 1g.10gb has 16 of 132 multiprocessors and 9.75 GiB, 2g.20gb 32 and 19.62, 3g.40gb 60 and 39.5,
4g.40gb 64 and 39.5, 7g.80gb all. So g/8 of the multiprocessors is right within 10 %, and low at 3g.

A slice reaches no other GPU: NVLink and peer-to-peer are off, and NCCL refuses two slices of one GPU.
"""

import re
from dataclasses import replace

from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.errors import UnsupportedError

_SLICE = re.compile(r"(?P<part>.+?)[-_ ]MIG[-_ ](?P<profile>\S+)", re.IGNORECASE)
_PROFILE = re.compile(r"(?P<compute>\d)g\.(?P<memory_gb>\d{1,3})gb(?:[.+]me)?", re.IGNORECASE)
_SHARES = {"A100": 8, "A800": 8, "H100": 8, "H800": 8, "H200": 8, "GH200": 8, "B200": 8, "GB200": 8, "A30": 4}
"""Shares of memory by the family of a part, the first word of its name."""
_MOST_COMPUTE = 7
_RATES = (
    "bf16_flop_per_s",
    "fp16_flop_per_s",
    "fp8_flop_per_s",
    "fp4_flop_per_s",
    "tf32_flop_per_s",
    "fp32_flop_per_s",
    "matmul16_flop_per_s",
    "matmul8_flop_per_s",
    "tdp_w",
    "host_w",
)
"""What a slice has of its GPU in the proportion of the multiprocessors; of power, that is a guess."""
_LABEL_BYTES = 1.06e9
"""What a GB of a profile's name stands for: 80 of them are an H100's 81,559 MiB, 141 an H200's 143,771."""
_DRIVER_KEEPS = 0.03
"""Of a share of memory (H100: 9.75 of 9.96 GiB; A100-40GB: 4.75 of 4.94)."""


def divided(name: str) -> tuple[str, str]:
    """The GPU's name and the profile; an empty profile if the name has none."""
    found = _SLICE.fullmatch(name.strip())
    return (found["part"], found["profile"]) if found else (name, "")


def sliced(part: Gpu, profile: str) -> Gpu:
    """A slice of a part; UnsupportedError if the part has no such profile."""
    shares, found = _SHARES.get(part.name.partition("-")[0], 0), _PROFILE.fullmatch(profile)
    compute = int(found["compute"]) if found else 0
    memory = round(float(found["memory_gb"]) * _LABEL_BYTES / part.memory_bytes * shares) if found else 0
    if not (0 < compute <= min(shares, _MOST_COMPUTE) and compute <= memory * 2 and 0 < memory <= shares):
        raise UnsupportedError(f"gpu {part.name}-MIG-{profile}: {part.name} has no such MIG slice")
    rate, kept = compute / shares, memory / shares
    scaled = {name: getattr(part, name) * rate for name in _RATES}
    return replace(
        part,
        name=f"{part.name}-MIG-{profile.lower()}",
        memory_bytes=part.memory_bytes * kept * (1 - _DRIVER_KEEPS),
        memory_bytes_per_s=part.memory_bytes_per_s * kept,
        streaming_multiprocessors=round(part.streaming_multiprocessors * rate),
        nvlink_bytes_per_s=0.0,
        nvlink_domain_gpus=1,
        gpus_per_node=1,
        price_usd_per_gpu_h=part.price_usd_per_gpu_h and part.price_usd_per_gpu_h * rate,
        aliases=(),
        notes=f"{compute} of {shares} shares of the multiprocessors, {memory} of {shares} of the memory",
        **scaled,
    )
