"""The agent's public name, for training scripts: `import rightsizer_launch.agent as agent`.

These calls do nothing where an observed stack, or a stack's callback, already reports the training.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rightsizer_launch.worker import agent
from rightsizer_launch.worker.agent import evaluating, start, waiting_for_data
from rightsizer_launch.worker.job_environment import (
    JobLayout,
    active,
    checkpoint_directory,
    layout,
    model,
    target_tokens,
)

__all__ = [
    "JobLayout",
    "active",
    "checkpoint_directory",
    "checkpointed",
    "evaluating",
    "finish",
    "layout",
    "model",
    "should_checkpoint",
    "should_stop",
    "start",
    "step",
    "target_tokens",
    "waiting_for_data",
]

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


def _of_the_script(act: Callable[_Arguments, _Value], otherwise: _Value) -> Callable[_Arguments, _Value]:
    @functools.wraps(act)
    def acts(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Value:
        return act(*arguments, **named) if agent.reports() else otherwise

    return acts


step = _of_the_script(agent.step, None)
should_checkpoint = _of_the_script(agent.should_checkpoint, otherwise=False)
should_stop = _of_the_script(agent.should_stop, otherwise=False)
checkpointed = _of_the_script(agent.checkpointed, None)
finish = _of_the_script(agent.finish, None)
