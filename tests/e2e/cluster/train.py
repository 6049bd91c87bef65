"""Train next to nothing, for ever, in step with the other workers; tests of the cluster launch it."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

CHECKPOINT = Path("/checkpoints/step")
STEP_S = 0.1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """A linear layer under DDP; rank 0 keeps the step on the shared volume."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    step = int(CHECKPOINT.read_text()) if CHECKPOINT.exists() else 0
    _say(f"rank {rank}/{world} resumes at step {step}")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
        step += 1
        if rank == 0:
            written = CHECKPOINT.with_suffix(".new")
            written.write_text(str(step))
            os.replace(written, CHECKPOINT)
            _say(f"step {step} world {world}")
        time.sleep(STEP_S)


if __name__ == "__main__":
    main()
