"""A real, small, elastic data-parallel training whose step time the test sets: a linear map, in numpy.

The tests start some hundred workers, and most of a start is `import torch`. So only a worker that is not
alone imports it, for gloo, and it averages gradients itself: DDP and torch.optim import torch._dynamo, which
takes as much processor time again. The examples train with DDP.

STEP_SECONDS: duration of a step with one worker; w workers take 1/sqrt(w) of it. STALL: the share of a step
that waits for data. CRASH_AT: the number of workers at which it exits. STANDS_STILL_AT: the step at which it
hangs, unless it was resumed. A step counts as the plan's batch.
"""

import math
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from rightsizer_launch import agent
from rightsizer_launch.worker.torch_import import uncollected

ROWS, WIDTH = 24, 32
STEP_S = float(os.environ.get("STEP_SECONDS", "0.3"))
STALL = float(os.environ.get("STALL", "0"))
CRASH_AT = int(os.environ.get("CRASH_AT", "0"))
STANDS_STILL_AT = int(os.environ.get("STANDS_STILL_AT", "0"))
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

if WORLD > 1:
    with uncollected():
        import torch
        import torch.distributed as dist


def mean(values: Any) -> Any:
    """The element-wise mean over all workers."""
    if WORLD > 1:
        dist.all_reduce(torch.from_numpy(values))  # in place
    return values / WORLD


def rows(step: int) -> Any:
    """This rank's share of a step's data, the same for every world size."""
    return np.random.default_rng(step).standard_normal((ROWS, WIDTH))[RANK::WORLD]


def descend(model: Any, data: Any, *, rate: float = 0.5) -> float:
    """A step of gradient descent towards the identity; this rank's loss before it."""
    error = data @ model - data
    model -= rate * mean(2 * data.T @ error / error.size)
    return float((error**2).mean())


def save(path: Path, model: Any, step: int) -> None:
    """Rank 0 replaces the checkpoint atomically."""
    if RANK == 0:
        draft = path.with_suffix(".draft.npz")
        np.savez(draft, model=model, step=step)
        draft.replace(path)
    if WORLD > 1:
        dist.barrier()
    agent.checkpointed(path)


def main() -> None:
    """Train until the plan's tokens are done or a stop is requested."""
    if WORLD > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    if WORLD == CRASH_AT:
        raise SystemExit(f"cannot train with {WORLD} workers")
    layout = agent.layout()
    tokens = layout.global_batch_sequences * layout.sequence_tokens
    model, step = np.random.default_rng(0).uniform(-1, 1, (WIDTH, WIDTH)) / math.sqrt(WIDTH), 0
    home = agent.checkpoint_directory("checkpoints")
    home.mkdir(parents=True, exist_ok=True)
    path = home / "state.npz"
    if path.exists():
        with np.load(path) as state:
            model, step = state["model"], int(state["step"])
    stands_still_at = 0 if step else STANDS_STILL_AT
    agent.start(step=step, tokens=step * tokens)
    pause_s = STEP_S / math.sqrt(WORLD)
    while step * tokens < agent.target_tokens(1e6):
        with agent.waiting_for_data():
            time.sleep(STALL * pause_s)
            data = rows(step)
        loss = descend(model, data)
        time.sleep((1 - STALL) * pause_s)
        step += 1
        agent.step(tokens=tokens, loss=loss)
        while step == stands_still_at:
            time.sleep(1)
        if agent.should_checkpoint():
            save(path, model, step)
        if agent.should_stop():
            break
    else:
        save(path, model, step)
        agent.finish()
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
