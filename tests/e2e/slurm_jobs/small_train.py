"""A real, tiny, elastic DDP training: a linear map learnt from fixed data, saved and resumed."""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rightsizer_launch import agent

BATCH, WIDTH, TOKENS = 16, 32, 2048  # tokens a step, as the plan says: 16 sequences of 128
PAUSE_S = float(os.environ.get("STEP_SECONDS", "0.2"))


def rows(step: int, rank: int, world: int) -> torch.Tensor:
    """This rank's share of a step's data, the same whatever the world."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(BATCH, WIDTH, generator=generator)[rank::world]


def main() -> None:
    """Train until the plan's tokens are done or a stop is asked for."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    home = agent.checkpoint_directory("checkpoints")
    home.mkdir(parents=True, exist_ok=True)
    path, step = home / "state.pt", 0
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        step = state["step"]
    agent.start(step=step, tokens=step * TOKENS)
    while step * TOKENS < agent.target_tokens(1e6):
        data = rows(step, dist.get_rank(), dist.get_world_size())
        loss = ((model(data) - data) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(PAUSE_S)
        step += 1
        agent.step(tokens=TOKENS, loss=loss.item())
        if agent.should_checkpoint():
            save(path, model.module, step)
        if agent.should_stop():
            break
    else:
        save(path, model.module, step)
        agent.finish()
    dist.destroy_process_group()


def save(path: Path, model: torch.nn.Module, step: int) -> None:
    """Rank 0 writes; a checkpoint is there whole or not at all."""
    if dist.get_rank() == 0:
        draft = path.with_suffix(".draft")
        torch.save({"model": model.state_dict(), "step": step}, draft)
        draft.replace(path)
    dist.barrier()
    agent.checkpointed(path)


if __name__ == "__main__":
    main()
