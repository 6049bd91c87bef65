"""The agent's public name, for training scripts: `import rightsizer_launch.agent as agent`."""

from rightsizer_launch.worker.agent import (
    JobLayout,
    active,
    checkpoint_directory,
    checkpointed,
    evaluating,
    finish,
    layout,
    model,
    should_checkpoint,
    should_stop,
    start,
    step,
    target_tokens,
    waiting_for_data,
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
