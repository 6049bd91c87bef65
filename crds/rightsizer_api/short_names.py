"""The short names of plan fields: one table for the command line's options and Slurm's comments."""

import json
from collections.abc import Mapping
from typing import Any

SHORT_NAMES: Mapping[str, str] = {
    "model": "model.name",
    "config": "model.configPath",
    "method": "workload.method",
    "tokens": "workload.tokens",
    "examples": "workload.dataset.examples",
    "example_length": "workload.dataset.length",
    "epochs": "workload.dataset.epochs",
    "sequence_length": "workload.sequenceLength",
    "global_batch": "workload.globalBatchTokens",
    "precision": "workload.precision",
    "optimizer": "workload.optimizer",
    "recompute": "workload.recompute",
    "reference_model": "workload.referenceModel",
    "lora_rank": "workload.lora.rank",
    "lora_targets": "workload.lora.targets",
    "quantised_bits": "workload.quantisedBits",
    "loss": "workload.loss",
    "attention": "workload.attention",
    "compile": "workload.compile",
    "library_version": "workload.libraryVersion",
    "framework": "launch.framework",
    "deadline": "deadline.finishWithin",
    "finish_by": "deadline.finishBy",
    "confidence": "deadline.confidence",
    "budget": "budget.maxUSD",
    "objective": "objective",
    "max_gpus": "resources.maxGPUs",
    "min_gpus": "resources.minGPUs",
    "gpus": "resources.gpus",
    "spare_nodes": "resources.spareNodes",
    "gpu": "resources.gpuTypes",
    "gpus_per_node": "resources.gpusPerNode",
    "node_shape": "resources.nodeShape",
    "inter_node_gbps": "resources.interconnect.interNodeGBps",
    "intra_node_gbps": "resources.interconnect.intraNodeGBps",
    "gpu_power_watts": "resources.gpuPowerWatts",
    "price": "budget.usdPerGPUHour",
    "dp": "layout.dp",
    "tp": "layout.tp",
    "pp": "layout.pp",
    "vpp": "layout.vpp",
    "cp": "layout.cp",
    "ep": "layout.ep",
    "micro_batch": "layout.microBatch",
    "elastic": "elasticity.mode",
}
"""Short name -> path under `spec`. A flag is the name with dashes: --sequence-length."""

_RIVALS = (
    {"model.name", "model.config", "model.configPath", "model.dimensions"},
    {"deadline.finishWithin", "deadline.finishBy"},
    {"workload.tokens", "workload.dataset"},
    {"workload.globalBatchTokens", "workload.globalBatchSequences"},
)
"""Fields of which a plan has one: what sets one takes the others out of the manifest beneath it."""


def overlaid(beneath: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's `spec` with values put at dotted paths; fields that rival a given one are dropped."""
    spec: dict[str, Any] = json.loads(json.dumps(beneath))
    rivals = {r for path in given for group in _RIVALS for r in group if _in(path, group)}
    rivals = {r for r in rivals if not any(_in(path, {r}) for path in given)}
    for path in rivals:
        *parents, leaf = path.split(".")
        _node(spec, parents).pop(leaf, None)
    for path, value in given.items():
        *parents, leaf = path.split(".")
        _node(spec, parents)[leaf] = value
    return {name: part for name, part in spec.items() if part != {}}


def _in(path: str, group: set[str]) -> bool:
    """Whether a path is one of the group, or below one."""
    return any(path == field or path.startswith(f"{field}.") for field in group)


def _node(spec: dict[str, Any], parents: list[str]) -> dict[str, Any]:
    node = spec
    for parent in parents:
        node = node.setdefault(parent, {})
    return node
