"""Sums over all ranks, by which the workers agree on flags. They use gloo and wait for no GPU."""

from typing import Any

from rightsizer_launch.worker.job_environment import rank, world_size


def control_group() -> Any:
    """A gloo group for the flags: the default group where that is gloo; None where there is one process."""
    if world_size() == 1:
        return None
    import torch.distributed as dist  # only where a job is distributed

    return dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")


def reduced(group: Any, values: list[float]) -> list[float]:
    """Element-wise sum over all ranks."""
    if group is None:
        return values
    import torch

    message = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(message, group=group)
    summed: list[float] = message.tolist()
    return summed


def gathered(group: Any, value: int) -> tuple[int, ...]:
    """The workers' values by rank, as sums of one-hot vectors."""
    return tuple(
        int(v) for v in reduced(group, [float(value) * (each == rank()) for each in range(world_size())])
    )
