"""What people type for plan fields: a cloud's node type as GPU, nodes for GPUs, other names of methods."""

import contextlib
from collections.abc import Mapping
from typing import Any

from rightsizer.catalog import lookup
from rightsizer.domain.hardware import Node
from rightsizer.errors import InputError
from rightsizer_cli.usage_errors import OptionError

__all__ = ["spelled_out"]

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
    return _with_nodes(_with_shape(_with_method(dict(values))))


def _with_method(values: dict[str, Any]) -> dict[str, Any]:
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
    if not shapes:
        return values
    if len(typed) > 1 or _SHAPE in values:
        remedy = "name one node type alone, or GPU types (`rightsizer gpus`)"
        raise OptionError("--gpu", value=", ".join(typed), remedy=remedy)
    return values | {_TYPES: [shapes[0].gpu], _SHAPE: shapes[0].name}


def _shape(name: str) -> Node | None:
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
