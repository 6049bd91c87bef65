"""The catalog as tables: one row each, or every field of one."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import table
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture, parameters_active, parameters_total
from rightsizer_engine.domain.hardware import Gpu, NodeShape
from rightsizer_engine.units import format_bytes, format_count, format_usd
from rightsizer_engine.values import immutable


@immutable
class CountedModel(Architecture):
    """A model of the catalog, or of a config, with its parameters: all, and those that a token uses."""

    parameters_total: float = dataclasses.field()  # the property of that name is no default
    parameters_active: float = dataclasses.field()


def print_models(models: Sequence[Architecture], *, as_json: bool) -> None:
    """Models with their sizes."""
    if as_json:
        echo_json([document(CountedModel(**values(m), **_parameters(m))) for m in models])
    elif len(models) == 1:
        names: dict[str, object] = {"aliases": _aliases(models[0].name)}
        show(fields(models[0], names | _parameters(models[0])))
    else:
        grid = table("model", "kind", ">parameters", ">active", ">layers", ">experts", "also")
        for m in models:
            total, active = float(parameters_total(m)), float(parameters_active(m))
            experts = f"{m.top_k} of {m.experts}" if m.experts else ""
            also = next(iter(lookup.model_aliases(m.name)), "")
            grid.add_row(
                m.name,
                m.family.value,
                format_count(total),
                format_count(active),
                str(m.layers),
                experts,
                also,
            )
        show(grid, whole=True)


def _aliases(name: str) -> tuple[str, ...]:
    """A catalog model's aliases; a model read from a config has none."""
    return lookup.model_aliases(name) if any(name == known.name for known in lookup.models()) else ()


def print_gpus(gpus: Sequence[Gpu], *, as_json: bool) -> None:
    """GPU types with what decides their speed."""
    if as_json:
        echo_json([document(g) for g in gpus])
    elif len(gpus) == 1:
        show(fields(gpus[0], {}))
    else:
        grid = table("GPU", ">memory", ">GB/s", ">16-bit TFLOP/s", ">fp8", ">NVLink GB/s", ">a node", ">$/h")
        for g in gpus:
            sixteen_bits = max(g.bf16_flop_per_s, g.fp16_flop_per_s)
            price = "" if g.price_usd_per_gpu_h is None else format_usd(g.price_usd_per_gpu_h)
            grid.add_row(g.name, format_bytes(g.memory_bytes), _scaled(g.memory_bytes_per_s, 1e9),
                         _scaled(sixteen_bits, 1e12), _scaled(g.fp8_flop_per_s, 1e12),
                         _scaled(g.nvlink_bytes_per_s, 1e9), str(g.gpus_per_node), price)  # fmt: skip
        show(grid, "TFLOP/s are dense, of 16 bits and of fp8; NVLink is in GB/s for each direction.")


def print_nodes(nodes: Sequence[NodeShape], *, as_json: bool) -> None:
    """Node types with their GPUs, network and price."""
    if as_json:
        echo_json([document(n) for n in nodes])
    elif len(nodes) == 1:
        show(fields(nodes[0], {}))
    else:
        grid = table("node type", "of", "GPUs", ">network GB/s a GPU", ">$/GPU-h")
        for n in nodes:
            price = "-" if n.price_usd_per_gpu_h is None else format_usd(n.price_usd_per_gpu_h)
            rate = f"{n.inter_bytes_per_s / 1e9:.3g}" if n.inter_bytes_per_s else "-"
            grid.add_row(n.name, n.provider, f"{n.gpus} x {n.gpu}", rate, price)
        show(grid, whole=True)


def _parameters(model: Architecture) -> dict[str, Any]:
    return {
        "parameters_total": float(parameters_total(model)),
        "parameters_active": float(parameters_active(model)),
    }


def values(noun: Any) -> dict[str, Any]:
    """A noun's fields and values."""
    return {f.name: getattr(noun, f.name) for f in dataclasses.fields(noun)}


def document(noun: Any) -> dict[str, Any]:
    """The list as JSON."""
    return {k: v.value if isinstance(v, enum.Enum) else v for k, v in values(noun).items()}


def fields(noun: Any, derived: Mapping[str, object]) -> Table:
    """Every field with a value, by its name in programs."""
    grid = table("", "")
    for name, value in (document(noun) | dict(derived)).items():
        if value not in (0, None, "", ()):
            grid.add_row(name, _text(name, value))
    return grid


def _text(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, float) and value >= 1e4:
        return format_bytes(value) if name.endswith("_bytes") else format_count(value)
    return str(value)


def _scaled(value: float, unit: float) -> str:
    """Zero means that the part does not have it."""
    return f"{value / unit:,.0f}" if value else "-"
