"""torchtitan's `Trainer`: its options come from the layout's flags; its public methods are observed.

Every degree of the layout may change between attempts: a DCP checkpoint loads into any of them.
"""

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rightsizer_launch.integrations.workers import joined_by_all
from rightsizer_launch.worker import agent, job_environment
from rightsizer_launch.worker.process_end import at_script_end


def observe(trainer: ModuleType) -> None:
    """Observe every `Trainer` of this process; `trainer` is the module `torchtitan.trainer`."""
    if not job_environment.active():
        return
    trainer.Trainer.__init__ = _filled(trainer.Trainer.__init__)
    trainer.Trainer.train = _observed(trainer.Trainer.train)


def _filled(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def filled(trainer: Any, config: Any) -> None:
        checkpoint = config.checkpoint
        checkpoint.enable, checkpoint.load_only = True, False
        checkpoint.folder = str(job_environment.checkpoint_directory("").resolve())
        init(trainer, config)

    return filled


def _observed(train: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(train)
    def observed_train(trainer: Any) -> None:
        import torch.distributed as dist

        from rightsizer_launch.integrations.torchtitan import observed

        joined_by_all(dist.get_world_size())
        train(observed(trainer))
        if not agent.should_stop():
            at_script_end(agent.finish)

    return observed_train
