"""Layouts and verdicts in words, short enough for one line."""

from typing import TYPE_CHECKING

from rightsizer.layout import Layout, Sharding
from rightsizer.units import format_duration, format_usd

if TYPE_CHECKING:
    from rightsizer.plan import Option

__all__ = ["layout_words", "recompute_word", "verdict"]

_SHARDED = {
    Sharding.NONE: "DDP",
    Sharding.ZERO1: "ZeRO-1 DP",
    Sharding.ZERO2: "ZeRO-2 DP",
    Sharding.ZERO3: "FSDP",
    Sharding.HSDP: "HSDP",
}


def layout_words(layout: Layout) -> str:
    """Every kind of parallelism that is used, such as "FSDP 8 x TP 8 x PP 4"."""
    words = [f"{_SHARDED[layout.sharding]} {layout.dp}"] if layout.dp > 1 else []
    if layout.sharding is Sharding.HSDP and layout.dp > 1:
        words = [f"HSDP {layout.dp // max(1, layout.shard_group)} x {layout.shard_group}"]
    words += [f"{name.upper()} {n}" for name in ("tp", "pp", "cp", "ep") if (n := getattr(layout, name)) > 1]
    if layout.vpp > 1:
        words.append(f"VPP {layout.vpp}")
    return " x ".join(words) or "one GPU"


def recompute_word(layout: Layout) -> str:
    """What is recomputed, in a word."""
    return layout.recompute.name.lower()


def verdict(option: "Option", *, confidence: float) -> str:
    """The answer in one line."""
    nodes = f"{option.nodes} node{'s' if option.nodes != 1 else ''}"
    nodes += f" + {option.spare_nodes} spare" if option.spare_nodes else ""
    cost = "" if option.cost_usd is None else f", {format_usd(option.cost_usd)}"
    return (
        f"{option.gpus} {option.cluster.gpu.name} ({nodes}), {layout_words(option.layout)}:"
        f" done in {format_duration(option.finish_s)}"
        f" ({confidence:.0%} sure by {format_duration(option.finish_at_confidence_s)}){cost}"
    )
