"""Look up models, GPUs, links and node shapes in the packaged data by any of their names."""

import re
from dataclasses import replace
from functools import cache

from rightsizer_engine.catalog.gpus import gpu, gpus
from rightsizer_engine.catalog.models import model, model_aliases, models
from rightsizer_engine.catalog.naming import Spellings, build_index
from rightsizer_engine.catalog.table import first, number, one, optional, read
from rightsizer_engine.domain.framework import framework, frameworks
from rightsizer_engine.domain.hardware import MOST_GPUS, Cluster, Gpu, NodeShape
from rightsizer_engine.errors import InputError

__all__ = [
    "cluster",
    "framework",
    "frameworks",
    "gpu",
    "gpus",
    "model",
    "model_aliases",
    "models",
    "node",
    "nodes",
    "system",
]

_SYSTEMS = "hpc"
"""The provider of node shapes that are named after a machine."""
_LEAST_POWER, _MOST_POWER = 0.2, 1.5
"""Of a part's own power: what drivers accept as a limit (30 to 130 % of it), with room."""


def cluster(
    gpu_name: str,
    *,
    gpus_per_node: int | None = None,
    nodes_shape: str | None = None,
    inter_bytes_per_s: float | None = None,
    intra_bytes_per_s: float | None = None,
    power_w: float | None = None,
    max_gpus: int = MOST_GPUS,
    price: float | None = None,
) -> Cluster:
    """GPUs in nodes. Missing values come from the node shape, else from the GPU's typical node.

    `power_w` is a limit below (or above) the part's own; of a superchip, for CPU and GPU together.
    The price defaults to the shape's, else to the median of the public list prices in gpus.csv (dated there;
    a mix of on-demand and rental prices without commitment).
    """
    part = _limited(gpu(gpu_name), power_w)
    shape = node(nodes_shape) if nodes_shape else None
    if shape and shape.gpu != part.name:
        raise InputError("nodeShape", value=nodes_shape, remedy=f"has {shape.gpu}, not {part.name}")
    size = gpus_per_node or (shape.gpus if shape else part.gpus_per_node)
    if part.is_slice:
        size = 1
    if shape and shape.power_w and not power_w:
        part = _limited(part, shape.power_w)
    domain = _domain(part, size) if intra_bytes_per_s is None else _reach(part, size, intra_bytes_per_s)
    alone = part.peer_bytes_per_s or part.pcie_bytes_per_s
    stated = inter_bytes_per_s or (shape.inter_bytes_per_s if shape else 0.0)
    return Cluster(
        gpu=part,
        gpus_per_node=size,
        nvlink_domain_gpus=domain,
        intra_bytes_per_s=intra_bytes_per_s or (part.nvlink_bytes_per_s if domain > 1 else alone),
        inter_bytes_per_s=stated or part.inter_bytes_per_s,
        inter_link=_inter_link(part, shape, inter_bytes_per_s),
        inter_known=bool(stated),
        max_gpus=max_gpus,
        price_usd_per_gpu_h=first(
            price, shape.price_usd_per_gpu_h if shape else None, part.price_usd_per_gpu_h
        ),
    )


def _limited(part: Gpu, power_w: float | None) -> Gpu:
    """The part under a power limit."""
    if power_w is None:
        return part
    if not _LEAST_POWER * part.tdp_w <= power_w <= _MOST_POWER * part.tdp_w:
        remedy = f"a {part.name} has {part.tdp_w:g} W; state its limit in watts"
        raise InputError("gpuPowerWatts", value=power_w, remedy=remedy)
    return replace(part, power_limit_w=power_w)


@cache
def nodes() -> tuple[NodeShape, ...]:
    """Every node shape in the catalog, with list prices and their dates."""
    return tuple(
        NodeShape(
            provider=row["provider"],
            name=row["name"],
            gpu=row["gpu"],
            gpus=int(row["gpus"]),
            inter_bytes_per_s=number(row["inter_gb_s_per_gpu"]) * 1e9,
            power_w=number(row["power_w"]),
            price_usd_per_gpu_h=optional(row["price_usd_per_gpu_h"]),
            price_date=row["price_date"],
            source=row["source"],
        )
        for row in read("nodes.csv")
    )


def system(text: str, gpu_name: str) -> NodeShape | None:
    """The nodes of the machine that a text names ("InfiniBand NDR, JUPITER"), if they have that GPU."""
    words = text.casefold()
    for item in nodes():
        named_here = re.search(rf"\b{re.escape(item.name.casefold())}\b", words)
        if item.provider == _SYSTEMS and item.gpu == gpu_name and named_here:
            return item
    return None


def node(name: str) -> NodeShape:
    """The node shape of that name ("p5.48xlarge", "DGX H100"), or the largest of that family ("p5")."""
    by_name = {item.name: item for item in nodes()}
    families = {item.name.partition(".")[0]: item.name for item in sorted(nodes(), key=lambda n: n.gpus)}
    index = build_index(
        Spellings(
            name=key,
            exact=(key, key.removeprefix("Standard_")),
            derived=tuple(family for family, largest in families.items() if largest == key),
        )
        for key in by_name
    )
    return by_name[one("nodeShape", name, index)]


def _domain(part: Gpu, gpus_per_node: int) -> int:
    """GPUs in one NVLink domain: a rack, a switched node, a bridge that spans the node, or one GPU."""
    if part.nvlink_domain_gpus < 8 < gpus_per_node or gpus_per_node == 1:
        return part.nvlink_domain_gpus if part.nvlink_domain_gpus > 8 else 1
    if part.nvlink_domain_gpus > 8:
        return part.nvlink_domain_gpus
    if part.nvlink_domain_gpus == 8:
        return gpus_per_node
    return gpus_per_node if gpus_per_node <= part.nvlink_domain_gpus else 1


def _reach(part: Gpu, gpus_per_node: int, intra_bytes_per_s: float) -> int:
    """GPUs in one domain of a link of the stated rate: NVLink's (a bridge joins two) if it is as fast."""
    if not 0 < part.nvlink_bytes_per_s <= 2 * intra_bytes_per_s:
        return 1
    return gpus_per_node if gpus_per_node == 2 else _domain(part, gpus_per_node)


def _inter_link(part: Gpu, shape: NodeShape | None, inter_bytes_per_s: float | None) -> str:
    if inter_bytes_per_s:
        return "as given"
    if shape and shape.inter_bytes_per_s:
        return f"{shape.provider} {shape.name}: {shape.source}"
    return f"typical: {part.inter_source}"
