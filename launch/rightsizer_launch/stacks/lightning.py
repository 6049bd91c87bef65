"""Lightning's `Trainer`: torchrun's workers and the plan become its arguments, a callback observes it.

Two public names are touched, once the package is imported: `Trainer` is made with the plan's arguments and
two more callbacks, and `Trainer.fit` resumes from the newest complete checkpoint unless the script names one.
"""

import functools
import math
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from rightsizer_engine.errors import InputError
from rightsizer_launch.stacks.batch import accumulation_for
from rightsizer_launch.worker import job_environment

_PRECISIONS = {
    "bf16": ("bf16-mixed", "bf16-true", "bf16"),
    "fp16": ("16-mixed", "16-true", "16"),
    "fp32": ("32-true", "32"),
}
"""Lightning's names of a plan's precision, the default first."""


def observe(package: ModuleType) -> None:
    """Observe every `Trainer` of this process; `package` is lightning.pytorch or pytorch_lightning."""
    if not job_environment.active():
        return
    from rightsizer_launch.integrations.lightning import RightsizerCallback

    class Batch(package.Callback):  # type: ignore[misc,name-defined]
        """Keeps the plan's global batch for any number of workers, by accumulation."""

        def on_train_start(self, trainer: Any, module: Any) -> None:
            accumulate(trainer, module)

    trains = package.Trainer
    trains.__init__ = _filled(trains.__init__, lambda: [Batch(), RightsizerCallback()])
    trains.fit = _resumed(trains.fit)


def _filled(init: Callable[..., None], callbacks: Callable[[], list[Any]]) -> Callable[..., None]:
    @functools.wraps(init)
    def filled(trainer: Any, **given: Any) -> None:
        own = given.get("callbacks") or []
        own = [*own] if isinstance(own, list | tuple) else [own]
        init(trainer, **arguments(given), callbacks=[*callbacks(), *own])

    return filled


def arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """A script's arguments of `Trainer` with torchrun's workers, the plan's length and its precision."""
    filled = {name: value for name, value in given.items() if name != "callbacks"}
    filled["devices"] = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    filled["num_nodes"] = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    if filled.get("strategy", "auto") == "auto":
        filled["strategy"] = "ddp"  # one worker too: its data has the same order as that of several
    layout = job_environment.layout()
    if layout.global_batch_sequences:
        step_tokens = layout.global_batch_sequences * max(1, layout.sequence_tokens)
        filled |= {"max_epochs": -1, "max_steps": math.ceil(job_environment.target_tokens(0.0) / step_tokens)}
    names = _PRECISIONS.get(os.environ.get("RIGHTSIZER_PRECISION", ""), ())
    if names and str(filled.get("precision")) not in names and not filled.get("plugins"):
        filled["precision"] = names[0]
    return filled


def accumulate(trainer: Any, module: Any) -> None:
    """Let a step train on the plan's global batch, in micro-batches of the script's DataLoader."""
    from rightsizer_launch.integrations.data_position import batch_size_of

    micro_batches = accumulation_for(job_environment.layout(), batch_size_of(trainer.train_dataloader))
    if micro_batches is None:
        return
    if not module.automatic_optimization:
        remedy = "the global batch is kept by Lightning's accumulation, which manual optimization has not"
        raise InputError("automatic_optimization", value=False, remedy=remedy)
    trainer.accumulate_grad_batches = micro_batches


def _resumed(fit: Callable[..., Any]) -> Callable[..., Any]:
    from rightsizer_launch.integrations.lightning import RightsizerCallback, newest_checkpoint

    @functools.wraps(fit)
    def resumed(trainer: Any, *positional: Any, **named: Any) -> Any:
        observer = next(one for one in trainer.callbacks if isinstance(one, RightsizerCallback))
        if len(positional) <= _BEFORE_CKPT_PATH and named.get("ckpt_path") in {None, "last"}:
            named["ckpt_path"] = newest_checkpoint(
                job_environment.checkpoint_directory(trainer.default_root_dir)
            )
        output = fit(trainer, *positional, **named)
        if observer.stops:
            sys.exit(0)  # saved: the script's test and its final model wait for the whole training
        return output

    return resumed


_BEFORE_CKPT_PATH = 4
"""Positional arguments of `fit` before `ckpt_path`."""
