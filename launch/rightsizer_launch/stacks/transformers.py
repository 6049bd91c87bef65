"""transformers' `Trainer`, and all that is built on it: the plan becomes its options, a callback observes it.

Three public names are touched, once `transformers` is imported: `TrainingArguments` is filled from the plan
as it is made, `DEFAULT_CALLBACKS` gains a callback, and `Trainer.train` resumes from the newest complete
checkpoint unless the script names one.
"""

import functools
import math
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rightsizer_launch.stacks.batch import Batch, batch_for
from rightsizer_launch.worker import job_environment, progress


def observe(trainer: ModuleType) -> None:
    """Observe every `Trainer` of this process; `trainer` is the module `transformers.trainer`."""
    from rightsizer_launch.integrations.hf import RightsizerCallback

    if not job_environment.active():
        return
    arguments, trains = trainer.TrainingArguments, trainer.Trainer
    arguments.__post_init__ = _filled(arguments.__post_init__)
    trainer.DEFAULT_CALLBACKS.append(RightsizerCallback)
    trains.train = _resumed(trains.train)


def _filled(post_init: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(post_init)
    def filled(arguments: Any) -> None:
        fill(arguments, batch_for(job_environment.layout()))
        post_init(arguments)

    return filled


def fill(arguments: Any, batch: Batch | None) -> None:
    """The plan's batch, steps, precision, recompute and checkpoint directory as `TrainingArguments`."""
    import torch

    layout = job_environment.layout()
    if batch is not None:
        arguments.per_device_train_batch_size = batch.micro_batch
        arguments.gradient_accumulation_steps = batch.micro_batches
        arguments.max_steps = math.ceil(job_environment.target_tokens(0.0) / batch.tokens)
    precision = os.environ.get("RIGHTSIZER_PRECISION")
    if precision in {"bf16", "fp16", "fp32"}:
        arguments.bf16, arguments.fp16 = precision == "bf16", precision == "fp16"
    if not torch.accelerator.is_available():
        arguments.use_cpu = True  # Accelerate joins workers without an accelerator only if it is told so
    if layout.recompute == "full" and os.environ.get("ACCELERATE_USE_FSDP") != "true":
        arguments.gradient_checkpointing = True
    if os.environ.get(progress.ENV_CHECKPOINT_PATH):
        arguments.output_dir = str(job_environment.checkpoint_directory(""))


def _resumed(train: Callable[..., Any]) -> Callable[..., Any]:
    from rightsizer_launch.integrations.hf import RightsizerCallback, newest_checkpoint

    @functools.wraps(train)
    def resumed(trainer: Any, resume_from_checkpoint: Any = None, *more: Any, **named: Any) -> Any:
        callbacks = trainer.callback_handler.callbacks
        observer = next((one for one in callbacks if isinstance(one, RightsizerCallback)), None)
        if observer is None:
            return train(trainer, resume_from_checkpoint, *more, **named)
        if not isinstance(resume_from_checkpoint, str):
            resume_from_checkpoint = newest_checkpoint(trainer.args.output_dir)
        _watch_loss(trainer, observer)
        output = train(trainer, resume_from_checkpoint, *more, **named)
        if observer.stops:
            sys.exit(0)  # saved: the script's evaluation and its final model wait for the whole training
        return output

    return resumed


def _watch_loss(trainer: Any, observer: Any) -> None:
    training_step = trainer.training_step

    @functools.wraps(training_step)
    def watched(*arguments: Any, **named: Any) -> Any:
        loss = training_step(*arguments, **named)
        observer.add_loss(loss)
        return loss

    trainer.training_step = watched
