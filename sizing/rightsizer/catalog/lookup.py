"""Look up models, GPUs, links and node shapes in the packaged data by any of their names."""

import csv
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rightsizer import packaged
from rightsizer.catalog.naming import Index, Spellings, build_index, lookup, nearest
from rightsizer.domain.architecture import Architecture, AttentionKind, Family
from rightsizer.domain.framework import framework, frameworks
from rightsizer.domain.hardware import MOST_GPUS, Cluster, Gpu, Link, Node
from rightsizer.errors import InputError, UnknownNameError, UnsupportedError

__all__ = [
    "cluster",
    "framework",
    "frameworks",
    "gpu",
    "gpus",
    "link",
    "links",
    "model",
    "model_aliases",
    "models",
    "node",
    "nodes",
]

PCIE_BYTES_PER_S = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
"""PCIe x16 by generation, per direction (links.csv; stas00/ml-engineering, network/README.md)."""

_UNMEASURED = "not supported: the engine has no measurements of it"
_NOT_GPUS = {
    "tpu": f"a TPU runs JAX/XLA; {_UNMEASURED}",
    "trainium": f"Trainium runs the Neuron SDK; {_UNMEASURED}",
    "gaudi2": f"Gaudi runs Habana's stack; {_UNMEASURED}",
    "gaudi3": f"Gaudi runs Habana's stack; {_UNMEASURED}",
}
_UNET = "not supported: a convolutional UNet; the engine models transformers only"
_MEMORY = re.compile(r"[-_ ]?\d+ ?GB\b", re.IGNORECASE)
_LISTED = {"gpu": "gpus", "model": "models"}

Row = Mapping[str, str]


def gpu(name: str) -> Gpu:
    """The GPU by its catalog, nvidia-smi, GPU Feature Discovery, Slurm gres or common name.

    A name may include the memory ("A100-80GB"). An ambiguous name resolves to the data's default ("H100" is
    the SXM5 part); without a default it is an error that lists the candidates.
    """
    _refuse_slices(name)
    stripped = re.sub(r"^(?:gres/)?gpu:|\s*\([^)]*\)", "", name.strip())
    rows = _gpu_rows()
    written = rows.get(stripped) or _named(rows, "default_for").get(stripped)
    row = written or rows[_one("gpu", stripped, _gpu_index())]
    reason = _NOT_GPUS.get(row["architecture"])
    if reason:
        raise UnsupportedError(f"gpu {row['name']!r}: {reason}")
    return _gpu(row["name"])


@cache
def gpus() -> tuple[Gpu, ...]:
    """Every supported GPU. Other accelerators are in the data only to refuse them by name."""
    return tuple(_gpu(row["name"]) for row in _gpu_rows().values() if row["architecture"] not in _NOT_GPUS)


def cluster(
    gpu_name: str,
    *,
    gpus_per_node: int | None = None,
    nodes_shape: str | None = None,
    inter_bytes_per_s: float | None = None,
    max_gpus: int = MOST_GPUS,
    price: float | None = None,
) -> Cluster:
    """GPUs in nodes. Missing values come from the node shape, else from the GPU's typical node.

    The price defaults to the shape's, else to the median of the public list prices in gpus.csv (dated there;
    a mix of on-demand and rental prices without commitment).
    """
    part = gpu(gpu_name)
    shape = node(nodes_shape) if nodes_shape else None
    if shape and shape.gpu != part.name:
        raise InputError("nodeShape", value=nodes_shape, remedy=f"has {shape.gpu}, not {part.name}")
    size = gpus_per_node or (shape.gpus if shape else part.gpus_per_node)
    domain = _domain(part, size)
    stated = inter_bytes_per_s or (shape.inter_bytes_per_s if shape else 0.0)
    return Cluster(
        gpu=part,
        gpus_per_node=size,
        nvlink_domain_gpus=domain,
        intra_bytes_per_s=part.nvlink_bytes_per_s if domain > 1 else part.pcie_bytes_per_s,
        inter_bytes_per_s=stated or part.inter_bytes_per_s,
        inter_link=_inter_link(part, shape, inter_bytes_per_s),
        inter_known=bool(stated),
        max_gpus=max_gpus,
        price_usd_per_gpu_h=_first(
            price, shape.price_usd_per_gpu_h if shape else None, part.price_usd_per_gpu_h
        ),
    )


def model(name: str) -> Architecture:
    """The architecture by its catalog name or Hugging Face id; case and punctuation do not matter."""
    rows = _model_rows()
    written = rows.get(name) or _named(rows, "aliases").get(name)
    row = written or rows[_one("model", name, _model_index())]
    if row["family"] == "unet":
        raise UnsupportedError(f"model {row['name']!r}: {_UNET}")
    return _model(row["name"])


@cache
def models() -> tuple[Architecture, ...]:
    """Every supported architecture."""
    return tuple(_model(row["name"]) for row in _model_rows().values() if row["family"] != "unet")


def model_aliases(name: str) -> tuple[str, ...]:
    """The aliases of a catalog model, such as its Hugging Face ids."""
    return tuple(_split(_model_rows()[model(name).name]["aliases"]))


@cache
def links() -> tuple[Link, ...]:
    """Every kind of link in the catalog."""
    return tuple(
        Link(
            name=row["name"],
            scope=row["scope"],
            bytes_per_s=_number(row["gb_s_per_direction"]) * 1e9,
            achievable_fraction=_optional(row["achievable_fraction"]),
            aliases=tuple(_split(row["aliases"])),
            source=row["source"],
        )
        for row in _read("links.csv")
    )


def link(name: str) -> Link:
    """The link of that name or alias ("hdr", "NVLink 4 + NVSwitch 3", "efa2")."""
    by_name = {item.name: item for item in links()}
    spellings = (Spellings(name=item.name, exact=(item.name, *item.aliases)) for item in links())
    return by_name[_one("link", name, build_index(spellings))]


@cache
def nodes() -> tuple[Node, ...]:
    """Every node shape in the catalog, with list prices and their dates."""
    return tuple(
        Node(
            provider=row["provider"],
            name=row["name"],
            gpu=_gpu_rows()[row["gpu"]]["name"],
            gpus=int(row["gpus"]),
            inter_bytes_per_s=_number(row["inter_gb_s_per_gpu"]) * 1e9,
            price_usd_per_gpu_h=_optional(row["price_usd_per_gpu_h"]),
            price_date=row["price_date"],
            source=row["source"],
        )
        for row in _read("nodes.csv")
    )


def node(name: str) -> Node:
    """The node shape of that name ("p5.48xlarge", "DGX H100")."""
    by_name = {item.name: item for item in nodes()}
    index = build_index(Spellings(name=key, exact=(key,)) for key in by_name)
    return by_name[_one("nodeShape", name, index)]


def _named(rows: Mapping[str, Row], cell: str) -> Mapping[str, Row]:
    """Rows by the exact names in a cell: much faster than an index of all spellings."""
    return {name: row for row in rows.values() for name in _split(row[cell])}


def _one(field: str, name: str, index: Index) -> str:
    """The only row of that name; an unknown or ambiguous name is an error that lists candidates."""
    matches = lookup(index, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        remedy = f"ambiguous; use one of: {', '.join(matches)}"
        raise UnknownNameError(field, value=name, candidates=matches, remedy=remedy)
    near = nearest(index, name)
    listed = f"all: `rightsizer {_LISTED.get(field, field)}`"
    remedy = f"unknown; did you mean {', '.join(near)}? ({listed})" if near else f"unknown ({listed})"
    raise UnknownNameError(field, value=name, candidates=near, remedy=remedy)


# --- GPUs ------------------------------------------------------------


@cache
def _gpu(name: str) -> Gpu:
    row = _gpu_rows()[name]
    rates = {
        f"{kind}_flop_per_s": _number(row[f"{kind}_tflops"]) * 1e12
        for kind in ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")
    }
    return Gpu(
        name=name,
        architecture=row["architecture"],
        compute_capability=_number(row["compute_capability"]),
        memory_bytes=_number(row["memory_mib"]) * 2**20,
        memory_bytes_per_s=_number(row["memory_gb_s"]) * 1e9,
        nvlink_bytes_per_s=_number(row["nvlink_gb_s_bidirectional"]) * 1e9 / 2,
        pcie_bytes_per_s=PCIE_BYTES_PER_S[int(row["pcie_gen"])],
        tdp_w=_number(row["tdp_w"]),
        streaming_multiprocessors=int(row["streaming_multiprocessors"]),
        gpus_per_node=int(row["gpus_per_node"]),
        nvlink_domain_gpus=int(row["nvlink_domain_gpus"]),
        inter_bytes_per_s=_number(row["inter_gb_s_per_gpu"]) * 1e9,
        price_usd_per_gpu_h=_optional(row["price_usd_per_gpu_h"]),
        aliases=tuple(_split(row["aliases"])),
        source=row["source"],
        inter_source=row["inter_source"],
        price_source=row["price_source"],
        notes=row["notes"],
        **rates,
    )


def _refuse_slices(name: str) -> None:
    """Refuse MIG slices and shared GPUs, which lack a GPU's memory and rate, and TPUs under any name."""
    if re.search(r"\bMIG\b", name, re.IGNORECASE) or name.upper().endswith("-SHARED"):
        raise UnsupportedError(f"gpu {name!r}: MIG slices and shared GPUs are not supported; use whole GPUs")
    if re.search(r"\btpu", name, re.IGNORECASE):
        raise UnsupportedError(f"gpu {name!r}: {_NOT_GPUS['tpu']}")


@cache
def _gpu_rows() -> dict[str, Row]:
    return {row["name"]: row for row in _read("gpus.csv")}


@cache
def _gpu_index() -> Index:
    return build_index(_gpu_names(row) for row in _gpu_rows().values())


def _gpu_names(row: Row) -> Spellings:
    """A part's names as written; derived ones drop the memory or use the vendor's figure of it."""
    label = row["memory_label_gb"]
    exact = (row["name"], *_split(row["aliases"]))
    bare = {_MEMORY.sub("", name) for name in exact}
    defaults = _split(row["default_for"])
    return Spellings(
        name=row["name"],
        exact=exact,
        derived=(*bare, *(f"{name}-{label}GB" for name in bare)),
        defaults=(*defaults, *(f"{name}-{label}GB" for name in defaults)),
    )


def _domain(part: Gpu, gpus_per_node: int) -> int:
    """GPUs in one NVLink domain: a rack, a switched node, a bridge that spans the node, or one GPU."""
    if part.nvlink_domain_gpus < 8 < gpus_per_node or gpus_per_node == 1:
        return part.nvlink_domain_gpus if part.nvlink_domain_gpus > 8 else 1
    if part.nvlink_domain_gpus > 8:
        return part.nvlink_domain_gpus
    if part.nvlink_domain_gpus == 8:
        return gpus_per_node
    return gpus_per_node if gpus_per_node <= part.nvlink_domain_gpus else 1


def _inter_link(part: Gpu, shape: Node | None, inter_bytes_per_s: float | None) -> str:
    if inter_bytes_per_s:
        return "as given"
    if shape and shape.inter_bytes_per_s:
        return f"{shape.provider} {shape.name}: {shape.source}"
    return f"typical: {part.inter_source}"


# --- models ------------------------------------------------------------

_COUNTS = (
    "layers",
    "hidden",
    "ffn_hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "max_sequence",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "sliding_layers",
    "experts",
    "top_k",
    "expert_ffn_hidden",
    "shared_experts",
    "dense_layers",
    "mlp_free_layers",
    "mtp_layers",
    "attention_free_layers",
    "indexer_width",
    "linear_layers",
    "linear_heads",
    "linear_in",
    "linear_inner",
    "linear_saved",
    "linear_state",
    "linear_scan_flop",
    "encoder_layers",
    "encoder_tokens",
    "encoder_hidden",
    "encoder_ffn_hidden",
    "encoder_heads",
    "encoder_per_layer_parameters",
    "fixed_tokens",
    "embedding_hidden",
    "per_layer_parameters",
    "extra_parameters",
)


@cache
def _model(name: str) -> Architecture:
    row = _model_rows()[name]
    counts: dict[str, Any] = {key: int(row[key] or 0) for key in _COUNTS}
    return Architecture(
        name=name,
        family=Family(row["family"]),
        attention=AttentionKind(row["attention"]),
        gated_mlp=row["gated_mlp"] == "1",
        tied_embeddings=row["tied_embeddings"] == "1",
        parallel_residual=row["parallel_residual"] == "1",
        attention_gate=row["attention_gate"] == "1",
        moe_layer_step=int(row["moe_layer_step"] or 1),
        source=row["source"],
        **counts,
    )


@cache
def _model_rows() -> dict[str, Row]:
    return {row["name"]: row for row in _read("models.csv")}


@cache
def _model_index() -> Index:
    return build_index(_model_names(row) for row in _model_rows().values())


def _model_names(row: Row) -> Spellings:
    exact = (row["name"], *_split(row["aliases"]))
    bare = [name.rpartition("/")[2] for name in exact if "/" in name]
    return Spellings(
        name=row["name"],
        exact=exact,
        derived=(*bare, *(name.removesuffix("-hf") for name in bare)),
    )


# --- cells ------------------------------------------------------------


def _read(file: str) -> tuple[Row, ...]:
    header, *rows = csv.reader(packaged.text(file).splitlines())
    return tuple(dict(zip(header, row, strict=True)) for row in rows)


def _split(cell: str) -> list[str]:
    return [part for part in cell.split("|") if part]


def _number(cell: str) -> float:
    return float(cell) if cell else 0.0


def _optional(cell: str) -> float | None:
    return float(cell) if cell else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
