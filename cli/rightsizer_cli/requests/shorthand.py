"""Shorthand for plan fields: a cloud's node type as GPU, nodes for GPUs, other names of methods."""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import NodeShape
from rightsizer_engine.errors import InputError, RightsizerError, UnknownNameError

_METHODS = {
    "sft": "finetune",
    "full": "finetune",
    "full-finetune": "finetune",
    "continued-pretraining": "pretrain",
}
_PREFERENCES = {"dpo": True, "ipo": True, "kto": True, "orpo": False, "simpo": False, "cpo": False}
"""Training on preferences, and whether it has a reference model."""

_NOT_SIZED = dict.fromkeys(
    ("rl", "rlhf", "ppo", "grpo", "rloo", "dapo"),
    "reinforcement learning is not sized: most of its time is generation, not training",
)
_DURATIONS = {"deadline.finishWithin"}
_COUNTS = {"workload.tokens", "workload.dataset.examples", "workload.globalBatchTokens"}
_CHOICES = {"objective", "workload.lora.targets"} | {
    f"workload.{field}" for field in ("method", "precision", "optimizer", "recompute", "loss", "attention")
}
"""Choices, each in small letters: people write BF16, AdamW and Flash too."""
_IN_WORDS = re.compile(
    r"(\d+(?:\.\d+)?) ?(weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)", re.ASCII
)
_GROUPED = re.compile(r"\d{1,3}(?:_\d{3})+|\d{1,3}(?:,\d{3})+", re.ASCII)
_COUNTED = re.compile(r"(?:gpu:)?(?:(\d+) ?[x* ] ?(.+)|(.+?)[:x*](\d{1,4}))", re.IGNORECASE | re.ASCII)
"""A number of GPUs beside their type, before it (8xH100) or behind it (H100:8, Slurm's gpu:h100:8)."""
_SERIES = 2
"""Letters of a cloud's node type that name its series: p5, a3, NC."""
_TYPES, _SHAPE, _PER_NODE, _GPUS = (
    "resources.gpuTypes",
    "resources.nodeShape",
    "resources.gpusPerNode",
    "resources.gpus",
)


def spelled_out(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of flags by plan field, with short forms spelled out.

    Raises OptionError for a method that is not sized, and for nodes of unknown size.
    """
    return _with_nodes(_with_shape(_with_method(_with_quantities(dict(values)))))


def _with_quantities(values: dict[str, Any]) -> dict[str, Any]:
    """Durations in words, counts with separators and choices in capitals, as a manifest writes them."""
    for field in _CHOICES & values.keys():
        values[field] = str(values[field]).strip().lower()
    for field in _DURATIONS & values.keys():
        values[field] = _duration(str(values[field]))
    for field in _COUNTS & values.keys():
        text = str(values[field]).strip()
        values[field] = re.sub("[_,]", "", text) if _GROUPED.fullmatch(text) else text
    return values


def _duration(typed: str) -> str:
    """`3 days` as 3d; any other text unchanged."""
    words = _IN_WORDS.fullmatch(typed.strip().lower())
    return f"{words[1]}{words[2][0]}" if words else typed


def _with_method(values: dict[str, Any]) -> dict[str, Any]:
    """Other names of methods, as the plan calls them. Preferences (DPO, KTO, ...) are fine-tuning."""
    typed = str(values.get("workload.method", "")).casefold()
    if typed in _NOT_SIZED:
        raise OptionError("--method", value=typed, remedy=_NOT_SIZED[typed])
    if typed in _PREFERENCES:
        return {"workload.referenceModel": _PREFERENCES[typed]} | values | {"workload.method": "finetune"}
    return values | {"workload.method": _METHODS[typed]} if typed in _METHODS else values


def _with_shape(values: dict[str, Any]) -> dict[str, Any]:
    """A node type among the GPU types, as the plan's node shape."""
    typed = values.get(_TYPES, [])
    shapes = [shape for shape in map(_shape, typed) if shape]
    for name in typed:
        _refuse(name)
    if not shapes:
        return values
    if len(typed) > 1 or _SHAPE in values:
        remedy = "name one node type alone, or GPU types (`rightsizer gpus`)"
        raise OptionError("--gpu", value=", ".join(typed), remedy=remedy)
    return values | {_TYPES: [shapes[0].gpu], _SHAPE: shapes[0].name}


def _refuse(name: str) -> None:
    """Refuse a number of GPUs beside their type (`8xH100`), and name node types that are spelt alike."""
    counted = _COUNTED.fullmatch(name)
    part = (counted[2] or counted[3]) if counted else ""
    if counted and not _unknown_gpu(part):
        number = counted[1] or counted[4]
        remedy = f"name the type alone: --gpu {part}; --gpus {number} fixes how many, --max-gpus limits them"
        raise OptionError("--gpu", value=name, remedy=remedy)
    unknown = _unknown_gpu(name)
    if unknown and not unknown.candidates:
        near = _near_nodes(name)
        if near:
            remedy = f"unknown; did you mean {', '.join(near)}? (all: `rightsizer gpus`, `rightsizer nodes`)"
            raise OptionError("--gpu", value=name, remedy=remedy)


def _near_nodes(name: str) -> list[str]:
    """Node types that are spelt alike and of the same series, by its first letters."""
    try:
        lookup.node(name)
    except UnknownNameError as error:
        series = name.casefold().removeprefix("standard_")[:_SERIES]
        return [c for c in error.candidates if c.casefold().removeprefix("standard_").startswith(series)]
    return []


def _unknown_gpu(name: str) -> UnknownNameError | None:
    """The error of a GPU type that the catalog lacks; None for one that it has or refuses by name."""
    try:
        lookup.gpu(name)
    except UnknownNameError as error:
        return error
    except RightsizerError:
        return None
    return None


def _shape(name: str) -> NodeShape | None:
    """The node type of that name, unless it names a GPU type or nothing."""
    with contextlib.suppress(InputError):
        lookup.gpu(name)
        return None
    with contextlib.suppress(InputError):
        return lookup.node(name)
    return None


def _with_nodes(values: dict[str, Any]) -> dict[str, Any]:
    """Nodes as GPUs. A node has the stated size, else the node type's, else the GPU type's usual one."""
    count = values.pop("nodes", None)
    if count is None:
        return values
    if _GPUS in values:
        raise OptionError("--nodes", value=count, remedy="give --nodes or --gpus, not both")
    return values | {_GPUS: count * (values.get(_PER_NODE) or _node_size(values, count))}


def _node_size(values: Mapping[str, Any], count: int) -> int:
    if _SHAPE in values:
        return lookup.node(values[_SHAPE]).gpus
    sizes: set[int] = set()
    with contextlib.suppress(InputError):
        sizes = {lookup.gpu(name).gpus_per_node for name in values.get(_TYPES, [])}
    if len(sizes) != 1:
        raise OptionError("--nodes", value=count, remedy="give --gpus-per-node, or one GPU type with --gpu")
    return sizes.pop()
