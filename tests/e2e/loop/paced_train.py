"""A real, tiny, elastic DDP training at a pace that the test sets, so that what it needs is known beforehand.

STEP_SECONDS: of a step with one worker; w workers take 1/sqrt(w) of it. STALL: the share of a step that waits
for data. CRASH_AT: the number of workers with which it cannot train. A step counts as the plan's batch.
"""

import math
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rightsizer_launch import agent

ROWS, WIDTH = 24, 32
STEP_S = float(os.environ.get("STEP_SECONDS", "0.3"))
STALL = float(os.environ.get("STALL", "0"))
CRASH_AT = int(os.environ.get("CRASH_AT", "0"))


def main() -> None:
    """Train until the plan's tokens are done or a stop is asked for."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    if world == CRASH_AT:
        raise SystemExit(f"cannot train with {world} workers")
    told = agent.layout()
    tokens = told.global_batch_sequences * told.sequence_tokens
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    home = agent.checkpoint_directory("checkpoints")
    home.mkdir(parents=True, exist_ok=True)
    path, step = home / "state.pt", 0
    if path.exists():
        state = torch.load(path)
        model.module.load_state_dict(state["model"])
        step = state["step"]
    agent.start(step=step, tokens=step * tokens)
    pause_s = STEP_S / math.sqrt(world)
    while step * tokens < agent.target_tokens(1e6):
        with agent.waiting_for_data():
            time.sleep(STALL * pause_s)
            rows = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step))[rank::world]
        loss = ((model(rows) - rows) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep((1 - STALL) * pause_s)
        step += 1
        agent.step(tokens=tokens, loss=loss.item())
        if agent.should_checkpoint():
            if rank == 0:
                draft = path.with_suffix(".draft")
                torch.save({"model": model.module.state_dict(), "step": step}, draft)
                draft.replace(path)
            dist.barrier()
            agent.checkpointed(path)
        if agent.should_stop():
            break
    else:
        agent.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
