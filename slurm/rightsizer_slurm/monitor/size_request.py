"""resize.json in the run directory: the size that the job's owner requests from its batch script.

`rightsizer slurm resize` writes it and signals the script, which saves and requeues the job at that size.
So nothing is left held if the command is killed. A request counts for one start of one job.
"""

import json
from pathlib import Path

from rightsizer_launch.worker.progress import write_json

NAME = "resize.json"
_MOST_NODES = 2**20


def write(folder: Path, *, job_id: int, restart: int, nodes: int) -> None:
    """Replace the request."""
    write_json(folder / NAME, {"job_id": job_id, "restart": restart, "nodes": nodes})


def read(folder: Path, *, job_id: int, restart: int) -> int | None:
    """The requested nodes; None without a valid request for this start."""
    try:
        request = json.loads((folder / NAME).read_text())
        nodes = request["nodes"]
        for_this_start = (request["job_id"], request["restart"]) == (job_id, restart)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return nodes if for_this_start and type(nodes) is int and 0 < nodes <= _MOST_NODES else None
