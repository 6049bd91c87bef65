"""What a size may not exceed: the options that its user wrote. Every size is checked. Pure."""

import math
from collections.abc import Mapping

from rightsizer_slurm.cluster.jobs import gres_gpus
from rightsizer_slurm.submit.protocol import SizingRequest


def exceeded(size: Mapping[str, int | str], request: SizingRequest) -> str:
    """The option that the fields of a size exceed; empty if none."""
    nodes, node_gpus = int(size["max_nodes"]), gres_gpus(str(size["gres"]))[1]
    most_gpus = gres_gpus(request.tres_per_job)[1]
    tasks = int(size.get("num_tasks", 0)) if request.num_tasks else 0
    bounds = {
        "--nodes": (nodes, request.most_nodes),
        "--gpus-per-node": (node_gpus, gres_gpus(request.gres)[1]),
        "--gpus": (nodes * node_gpus, most_gpus),
        "--ntasks": (tasks, request.num_tasks),
        "--time": (int(size.get("time_limit", 0)), request.time_limit),
    }
    wrong = (option for option, (placed, most) in bounds.items() if placed > (most or math.inf))
    partition = str(size.get("partition", ""))
    if request.partition and partition not in request.partition.split(","):
        return "--partition"
    return next(wrong, "")
