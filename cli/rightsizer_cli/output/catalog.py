"""The catalog as tables: one row each, or every field of one."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from rightsizer_api.spec.launch import NEEDS_A_STAGE, READ_FROM_LOG_LINES
from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.render import table
from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.framework_names import also_called
from rightsizer_engine.domain.architecture import Architecture, parameters_active, parameters_total
from rightsizer_engine.domain.familiarity import measured
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Gpu, NodeShape
from rightsizer_engine.units import format_bytes, format_count, format_usd
from rightsizer_engine.values import immutable
from rightsizer_launch.argv.frameworks import is_launched
from rightsizer_launch.stacks.catalog import resizes_in_place, stack_of

_METHODS = {"pretrain": "can_pretrain", "lora": "can_lora", "qlora": "can_qlora"}


@immutable
class CountedModel(Architecture):
    """A model of the catalog, or of a config, with its parameters: all, and those that a token uses."""

    parameters_total: float = dataclasses.field()  # the property of that name is no default
    parameters_active: float = dataclasses.field()


def print_models(models: Sequence[Architecture], *, as_json: bool) -> None:
    """Models with their sizes."""
    if as_json:
        echo_json([_document(CountedModel(**_values(m), **_parameters(m))) for m in models])
    elif len(models) == 1:
        names: dict[str, object] = {"aliases": _aliases(models[0].name)}
        show(_fields(models[0], names | _parameters(models[0])))
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
        echo_json([_document(g) for g in gpus])
    elif len(gpus) == 1:
        show(_fields(gpus[0], {}))
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
        echo_json([_document(n) for n in nodes])
    elif len(nodes) == 1:
        show(_fields(nodes[0], {}))
    else:
        grid = table("node type", "of", "GPUs", ">network GB/s a GPU", ">$/GPU-h")
        for n in nodes:
            price = "-" if n.price_usd_per_gpu_h is None else format_usd(n.price_usd_per_gpu_h)
            rate = f"{n.inter_bytes_per_s / 1e9:.3g}" if n.inter_bytes_per_s else "-"
            grid.add_row(n.name, n.provider, f"{n.gpus} x {n.gpu}", rate, price)
        show(grid, whole=True)


@immutable
class KnownFramework(Framework):
    """A framework with its other names, its evidence, and its abilities."""

    also_called: tuple[str, ...]
    methods: tuple[str, ...]
    measured_sources: int
    measured_runs: int
    launch: str
    measured_by: str
    resize: str


def print_frameworks(profiles: Sequence[Framework], *, as_json: bool) -> None:
    """Frameworks with their names, and whether they are launched or sized only."""
    if as_json:
        echo_json([_document(KnownFramework(**_values(profile), **_known(profile))) for profile in profiles])
    elif len(profiles) == 1:
        show(_fields(profiles[0], _known(profiles[0])))
    else:
        grid = table("framework", "also", "trains", ">sources", ">runs", "launch", "measured by", "resize")
        for profile in profiles:
            also, able = ", ".join(also_called(profile.name)), " ".join(_methods(profile))
            sources, runs = (str(count or "") for count in _measured(profile))
            ways = (_launch(profile), _observer(profile), _resize(profile))
            grid.add_row(profile.name, also, able, sources, runs, *ways)
        show(
            grid,
            "Sources and runs are the published ones behind the engine. Sized only: a plan's command states"
            " the layout by placeholders such as {layout.tp}. Any other script is custom. What a hook or"
            " log lines measure runs unmodified. Log lines neither save before a stop nor resume, so"
            " such a job is resized only if its command names {checkpoint.path}.",
        )


def _known(profile: Framework) -> dict[str, Any]:
    sources, runs = _measured(profile)
    return {
        "also_called": also_called(profile.name),
        "methods": _methods(profile),
        "measured_sources": sources,
        "measured_runs": runs,
        "launch": _launch(profile),
        "measured_by": _observer(profile),
        "resize": _resize(profile),
    }


def _methods(profile: Framework) -> tuple[str, ...]:
    return tuple(method for method, fact in _METHODS.items() if getattr(profile, fact))


def _measured(profile: Framework) -> tuple[int, int]:
    """Sources and runs of exactly this profile that measured step time."""
    table = measured()
    return table.count(np.array([runs.stack == profile.name for runs in table.runs]))


def _launch(profile: Framework) -> str:
    return "launched" if is_launched(profile.name) else "sized only"


def _observer(profile: Framework) -> str:
    """The reporter of a script's progress."""
    stack = stack_of(profile.name)
    return "agent" if stack is None else "hook" if stack.hooks else "log lines"


def _resize(profile: Framework) -> str:
    if profile.name in READ_FROM_LOG_LINES:
        return "if it can resume"
    if profile.name in NEEDS_A_STAGE:
        return "by restart, at a named ZeRO stage"
    return "in place" if resizes_in_place(profile.name) else "by restart"


def _parameters(model: Architecture) -> dict[str, Any]:
    return {
        "parameters_total": float(parameters_total(model)),
        "parameters_active": float(parameters_active(model)),
    }


def _values(noun: Any) -> dict[str, Any]:
    """A noun's fields and values."""
    return {f.name: getattr(noun, f.name) for f in dataclasses.fields(noun)}


def _document(noun: Any) -> dict[str, Any]:
    """A noun's fields as JSON."""
    return {k: v.value if isinstance(v, enum.Enum) else v for k, v in _values(noun).items()}


def _fields(noun: Any, derived: Mapping[str, object]) -> Table:
    """Every field with a value, by its name in programs."""
    grid = table("", "")
    for name, value in (_document(noun) | dict(derived)).items():
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
