"""The allocator's peak on the fullest GPU of a job, to compare with the predicted memory."""

import sys
from collections.abc import Callable
from typing import Any


def should_measure(steps: int) -> bool:
    """Whether to measure after this many steps: 2, 4, 8, ...; a peak settles early."""
    return steps >= 2 and steps & (steps - 1) == 0


def allocated_peak_bytes() -> float:
    """torch.cuda.max_memory_allocated of this process; 0 where it uses no GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return 0.0
    return float(torch.cuda.max_memory_allocated())


def max_peak_bytes(group: Any, peak_bytes: Callable[[], float] = allocated_peak_bytes) -> float | None:
    """The largest peak over the ranks of a gloo group (None: one process); None if nothing was measured.

    Every rank calls it.
    """
    largest = peak_bytes()
    if group is not None:
        import torch  # only where a job is distributed

        message = torch.tensor([largest], dtype=torch.float64)
        torch.distributed.all_reduce(message, op=torch.distributed.ReduceOp.MAX, group=group)
        largest = float(message.item())
    return largest or None
