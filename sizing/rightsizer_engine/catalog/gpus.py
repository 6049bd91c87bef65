"""GPUs of the catalog by any of their names."""

import re
from functools import cache, lru_cache

from rightsizer_engine.catalog.naming import Index, Spellings, build_index
from rightsizer_engine.catalog.slices import divided, sliced
from rightsizer_engine.catalog.table import Row, named, number, one, optional, read, split
from rightsizer_engine.domain.hardware import Gpu
from rightsizer_engine.errors import UnsupportedError
from rightsizer_engine.units import PCIE_BYTES_PER_S

_UNMEASURED = "not supported: the engine has no measurements of it"
_NOT_GPUS = {
    "tpu": f"a TPU runs JAX/XLA; {_UNMEASURED}",
    "trainium": f"Trainium runs the Neuron SDK; {_UNMEASURED}",
    "gaudi2": f"Gaudi runs Habana's stack; {_UNMEASURED}",
    "gaudi3": f"Gaudi runs Habana's stack; {_UNMEASURED}",
    "jetson": f"a Jetson module has no links to other GPUs; {_UNMEASURED}",
}
_MEMORY = re.compile(r"[-_ ]?\d+ ?GB\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def gpu(name: str) -> Gpu:
    """The GPU by its catalog, nvidia-smi, GPU Feature Discovery, Slurm gres or common name.

    A name may include the memory ("A100-80GB"). An ambiguous name resolves to the data's default ("H100" is
    the SXM5 part); without a default it is an error that lists the candidates.
    """
    part, profile = divided(name)
    if profile:
        return sliced(gpu(part), profile)
    _refuse_shared(name)
    stripped = re.sub(r"^(?:gres/)?gpu:|\s*\([^)]*\)", "", name.strip())
    rows = _gpu_rows()
    written = rows.get(stripped) or named("gpus.csv", "default_for").get(stripped)
    row = written or rows[one("gpu", stripped, _gpu_index())]
    reason = _NOT_GPUS.get(row["architecture"])
    if reason:
        raise UnsupportedError(f"gpu {row['name']!r}: {reason}")
    return _gpu(row["name"])


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every supported GPU. Other accelerators are in the data only to refuse them by name."""
    return tuple(_gpu(row["name"]) for row in _gpu_rows().values() if row["architecture"] not in _NOT_GPUS)


@cache
def _gpu(name: str) -> Gpu:
    row = _gpu_rows()[name]
    rates = {
        f"{kind}_flop_per_s": number(row[f"{kind}_tflops"]) * 1e12
        for kind in ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")
    }
    return Gpu(
        name=name,
        architecture=row["architecture"],
        compute_capability=number(row["compute_capability"]),
        memory_bytes=number(row["memory_mib"]) * 2**20,
        memory_bytes_per_s=number(row["memory_gb_s"]) * 1e9,
        nvlink_bytes_per_s=number(row["nvlink_gb_s_bidirectional"]) * 1e9 / 2,
        pcie_bytes_per_s=PCIE_BYTES_PER_S[int(row["pcie_gen"])],
        tdp_w=number(row["tdp_w"]),
        streaming_multiprocessors=int(row["streaming_multiprocessors"]),
        gpus_per_node=int(row["gpus_per_node"]),
        nvlink_domain_gpus=int(row["nvlink_domain_gpus"]),
        inter_bytes_per_s=number(row["inter_gb_s_per_gpu"]) * 1e9,
        peer_bytes_per_s=number(row["peer_gb_s"]) * 1e9,
        host_w=number(row["host_w"]),
        matmul16_flop_per_s=number(row["matmul16_tflops"]) * 1e12,
        matmul8_flop_per_s=number(row["matmul8_tflops"]) * 1e12,
        price_usd_per_gpu_h=optional(row["price_usd_per_gpu_h"]),
        aliases=tuple(split(row["aliases"])),
        source=row["source"],
        inter_source=row["inter_source"],
        price_source=row["price_source"],
        notes=row["notes"],
        **rates,
    )


def _refuse_shared(name: str) -> None:
    """Refuse shared GPUs, which lack a GPU's memory and rate, and TPUs under any name."""
    if name.upper().endswith("-SHARED"):
        raise UnsupportedError(f"gpu {name!r}: shared GPUs are not supported; use whole GPUs or MIG slices")
    if re.search(r"\b(?:jetson|(?:agx[ _-])?orin|xavier)\b", name, re.IGNORECASE):
        raise UnsupportedError(f"gpu {name!r}: {_NOT_GPUS['jetson']}")
    if re.search(r"\btpu", name, re.IGNORECASE):
        raise UnsupportedError(f"gpu {name!r}: {_NOT_GPUS['tpu']}")


@cache
def _gpu_rows() -> dict[str, Row]:
    return {row["name"]: row for row in read("gpus.csv")}


@cache
def _gpu_index() -> Index:
    return build_index(_gpu_names(row) for row in _gpu_rows().values())


def _gpu_names(row: Row) -> Spellings:
    """A part's names as written; derived ones drop the memory or use the vendor's figure of it."""
    label = row["memory_label_gb"]
    exact = (row["name"], *split(row["aliases"]))
    bare = {_MEMORY.sub("", name) for name in exact}
    defaults = split(row["default_for"])
    return Spellings(
        name=row["name"],
        exact=exact,
        derived=(*bare, *(f"{name}-{label}GB" for name in bare)),
        defaults=(*defaults, *(f"{name}-{label}GB" for name in defaults)),
    )
