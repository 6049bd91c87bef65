"""A real, small, elastic data-parallel training whose step time the test sets: a linear map.

The tests start some hundred workers, and most of a start is imports. So it averages gradients itself: DDP and
torch.optim import torch._dynamo, which takes as much processor time again as torch does. The examples train
with DDP.

STEP_SECONDS: duration of a step with one worker; w workers take 1/sqrt(w) of it. STALL: the share of a step
that waits for data. CRASH_AT: the number of workers at which it exits. STANDS_STILL_AT: the step at which it
hangs, unless it was resumed. A step counts as the plan's batch.
"""

import math
import os
import time
from datetime import timedelta
from pathlib import Path

from rightsizer_launch import agent
from rightsizer_launch.worker.torch_import import uncollected

with uncollected():
    import torch
    import torch.distributed as dist

ROWS, WIDTH = 24, 32
STEP_S = float(os.environ.get("STEP_SECONDS", "0.3"))
STALL = float(os.environ.get("STALL", "0"))
CRASH_AT = int(os.environ.get("CRASH_AT", "0"))
STANDS_STILL_AT = int(os.environ.get("STANDS_STILL_AT", "0"))


def rows(step: int, rank: int, world: int) -> torch.Tensor:
    """This rank's share of a step's data, the same for every world size."""
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step))[rank::world]


def descend(model: torch.nn.Module, *, world: int, rate: float = 0.5) -> None:
    """Gradient descent on the mean of all ranks' gradients."""
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=rate / world)
        parameter.grad = None


def save(path: Path, model: torch.nn.Module, step: int) -> None:
    """Rank 0 replaces the checkpoint atomically."""
    if dist.get_rank() == 0:
        draft = path.with_suffix(".draft")
        torch.save({"model": model.state_dict(), "step": step}, draft)
        draft.replace(path)
    dist.barrier()
    agent.checkpointed(path)


def main() -> None:
    """Train until the plan's tokens are done or a stop is requested."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == CRASH_AT:
        raise SystemExit(f"cannot train with {world} workers")
    layout = agent.layout()
    tokens = layout.global_batch_sequences * layout.sequence_tokens
    torch.manual_seed(0)
    model = torch.nn.Linear(WIDTH, WIDTH)
    home = agent.checkpoint_directory("checkpoints")
    home.mkdir(parents=True, exist_ok=True)
    path, step = home / "state.pt", 0
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        step = state["step"]
    stands_still_at = 0 if step else STANDS_STILL_AT
    agent.start(step=step, tokens=step * tokens)
    pause_s = STEP_S / math.sqrt(world)
    while step * tokens < agent.target_tokens(1e6):
        with agent.waiting_for_data():
            time.sleep(STALL * pause_s)
            data = rows(step, rank, world)
        loss = ((model(data) - data) ** 2).mean()
        loss.backward()
        descend(model, world=world)
        time.sleep((1 - STALL) * pause_s)
        step += 1
        agent.step(tokens=tokens, loss=loss.item())
        while step == stands_still_at:
            time.sleep(1)
        if agent.should_checkpoint():
            save(path, model, step)
        if agent.should_stop():
            break
    else:
        save(path, model, step)
        agent.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
