"""A worker that counts to the number of steps in its first argument; the sizes in the others fail."""

import json
import os
import sys
import time

from rightsizer_launch import agent

world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
if str(world) in sys.argv[2:]:
    sys.exit("this size does not work")
if world > 1:
    import torch.distributed as dist

    dist.init_process_group("gloo")
path = agent.checkpoint_directory("x") / "step.json"
path.parent.mkdir(exist_ok=True)
step = json.loads(path.read_text()) if path.exists() else 0
agent.start(step=step, tokens=step)
while step < int(sys.argv[1]):
    time.sleep(0.05)
    step += 1
    agent.step(tokens=1, loss=1.0 / step)
    if agent.should_checkpoint():
        if rank == 0:
            path.with_suffix(".new").write_text(json.dumps(step))
            path.with_suffix(".new").rename(path)
        agent.checkpointed(path)
    if agent.should_stop():
        break
else:
    agent.finish()
