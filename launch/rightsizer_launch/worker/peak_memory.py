"""The allocator's peak on the fullest GPU of a job: what a prediction of memory is held against."""

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["allocated_peak_bytes", "fullest_bytes", "worth_asking"]


def worth_asking(steps: int) -> bool:
    """Whether to ask after so many steps since a start: 2, 4, 8, ...; a peak settles early, asking costs."""
    return steps >= 2 and steps & (steps - 1) == 0


def allocated_peak_bytes() -> float:
    """torch.cuda.max_memory_allocated of this process; 0 where it uses no GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return 0.0
    return float(torch.cuda.max_memory_allocated())


def fullest_bytes(group: Any, peak_bytes: Callable[[], float] = allocated_peak_bytes) -> float | None:
    """The largest peak over the ranks of a gloo group (None: one process); None where nothing is measured.

    Every rank calls it.
    """
    largest = peak_bytes()
    if group is not None:
        import torch  # noqa: PLC0415 -- only where a job is distributed

        message = torch.tensor([largest], dtype=torch.float64)
        torch.distributed.all_reduce(message, op=torch.distributed.ReduceOp.MAX, group=group)
        largest = float(message.item())
    return largest or None
