"""One line for a training loop with Accelerate.

    accelerator = observed(Accelerator())

Accelerate has no hook at the end of a step. A step ends where the loop asks the prepared DataLoader for its
next batch, or leaves it: then the optimizer, the scheduler and the loop's own counters have moved. There the
step is reported, `save_state` is called when a checkpoint is due, and the script ends once rightsizer asks.
Before the first batch `load_state` resumes from the newest complete checkpoint, unless the script has
loaded one.

What it cannot see: a loop that breaks out before the end of its data reports its last step only if it begins
another epoch; the loop's own counters (progress bars, `completed_steps`) begin at zero.
"""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.scheduler import AcceleratedScheduler

from rightsizer_launch.integrations.checkpoints import (
    checkpoint_file,
    newest_file,
    read_position,
    remove_older_files,
    seal,
)
from rightsizer_launch.integrations.data_position import Skipping
from rightsizer_launch.integrations.workers import joined_by_all
from rightsizer_launch.integrations.wrapping import wrap
from rightsizer_launch.worker import agent, job_environment
from rightsizer_launch.worker.process_end import at_script_end


def observed(accelerator: Accelerator) -> Accelerator:
    """Observe the loop of an Accelerator, which keeps its own batch and length; returns it."""
    return _observed(accelerator, _Loop(accelerator, keeps=None)) if job_environment.active() else accelerator


def observed_by_plan(
    accelerator: Accelerator, keeps: Callable[[int], int | None], *, accumulates: int = 1
) -> Accelerator:
    """Observe as above; the loader ends at the plan's tokens, with the micro-batches of a step from `keeps`.

    `accumulates` is what the script itself accumulates: its learning rate's schedule counts those steps.
    """
    return _observed(accelerator, _Loop(accelerator, keeps=keeps, accumulates=accumulates))


def _observed(accelerator: Accelerator, loop: "_Loop") -> Accelerator:
    wrap(accelerator, "backward", loop.backward)
    wrap(accelerator, "load_state", loop.load_state)
    for loader in (DataLoaderShard, DataLoaderDispatcher):
        wrap(loader, "__iter__", loop.batches)
    wrap(AcceleratedOptimizer, "step", loop.optimizer_step)
    if loop.keeps is not None:
        wrap(AcceleratedOptimizer, "zero_grad", loop.zero_grad)
        wrap(AcceleratedScheduler, "step", loop.scheduler_step)
    return accelerator


def _sampler_of(loader: Any) -> Any:
    """The sampler of a prepared loader; None for an iterable data set, which begins again.

    `get_sampler` knows it only where `use_seedable_sampler` has set it.
    """
    known = loader.get_sampler()
    dealt = getattr(loader.batch_sampler, "batch_sampler", None)
    return getattr(dealt, "sampler", None) if known is None else known


class _Loop:
    """The position of a training loop: of the first DataLoader that is read in training mode."""

    def __init__(
        self, accelerator: Accelerator, *, keeps: Callable[[int], int | None] | None, accumulates: int = 1
    ) -> None:
        self.keeps = keeps
        self._accelerator, self._accumulates = accelerator, accumulates
        self._loader: Any = None
        self._whole: Any = None
        self._resumed = self._stepped = self._reports = False
        self._cleared: set[int] = set()
        self._loss: torch.Tensor | None = None
        self._micro_batches = 0
        self._step = self._epoch = self._epochs_left_out = 0
        self._tokens = self._sequences = 0.0

    def backward(self, own: Callable[..., Any], loss: torch.Tensor, **named: Any) -> Any:
        """Keep the loss of a micro-batch."""
        self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
        return own(loss, **named)

    def load_state(
        self, own: Callable[..., Any], input_dir: str | None = None, *more: Any, **named: Any
    ) -> Any:
        """Continue the count of steps and tokens, if the checkpoint has it."""
        self._resumed = True
        output = own(input_dir, *more, **named)
        position = read_position(input_dir) if input_dir else {}
        self._step, self._tokens = int(position.get("step", 0)), position.get("tokens", 0.0)
        return output

    def optimizer_step(self, own: Callable[..., Any], optimizer: Any, *more: Any, **named: Any) -> Any:
        """See whether this call is a step; the last of its micro-batches makes it one."""
        output = own(optimizer, *more, **named)
        if optimizer.gradient_state.sync_gradients:
            self._stepped = True
            self._cleared.discard(id(optimizer))
        return output

    def zero_grad(self, _own: Callable[..., Any], optimizer: Any, set_to_none: bool | None = None) -> None:
        """Clear gradients after a step only, wherever in its loop a script does so."""
        if id(optimizer) not in self._cleared:
            self._cleared.add(id(optimizer))
            optimizer.optimizer.zero_grad(**({} if set_to_none is None else {"set_to_none": set_to_none}))

    def scheduler_step(self, own: Callable[..., Any], scheduler: Any, *more: Any, **named: Any) -> Any:
        """Count a schedule in the script's own steps: as many in a step of the plan at every size.

        Accelerate steps a schedule once for each worker, but not for each micro-batch that is accumulated.
        """
        output = own(scheduler, *more, **named)
        accelerator = self._accelerator
        if accelerator.sync_gradients and not accelerator.split_batches:
            for _ in range(accelerator.num_processes * self._more_steps()):
                scheduler.scheduler.step(*more, **named)
        return output

    def _more_steps(self) -> int:
        steps = int(self._accelerator.gradient_accumulation_steps)
        return max(1, steps // self._accumulates) - 1

    def batches(self, own: Callable[[Any], Iterator[Any]], loader: Any) -> Iterator[Any]:
        """The loader's batches; a step ends when the loop requests the next one."""
        if not self._is_trained_on(loader):
            yield from own(loader)
            return
        if self._epochs_left_out or self._is_over():
            self._epochs_left_out = max(0, self._epochs_left_out - 1)
            loader.iteration += 1
            return
        for batch in own(loader):
            self._put_sampler_back(loader)
            self._synchronise(loader)
            yield batch
            self._end_of_batch(loader)
            if self._is_over():
                loader.end()
                return
        self._epoch, self._sequences = self._epoch + 1, 0.0

    def _is_over(self) -> bool:
        return self.keeps is not None and self._tokens >= job_environment.target_tokens(float("inf"))

    def _put_sampler_back(self, loader: Any) -> None:
        """Let the next epoch be a whole one, and checkpoints hold Accelerate's sampler."""
        if self._whole is not None:
            loader.set_sampler(self._whole)
            self._whole = None

    def _is_trained_on(self, loader: Any) -> bool:
        training = torch.is_grad_enabled() and any(model.training for model in self._accelerator._models)
        if self._loader is None and training and "transformers.trainer" not in sys.modules:
            self._loader = loader
            self._begin(loader)
        return self._reports and loader is self._loader

    def _begin(self, loader: Any) -> None:
        """Resume, and report the start."""
        accelerator = self._accelerator
        joined_by_all(accelerator.num_processes)
        newest = None if self._resumed else newest_file(job_environment.checkpoint_directory("checkpoints"))
        if newest is not None:
            accelerator.load_state(newest)
            position = read_position(newest)
            self._epoch = self._epochs_left_out = int(position["epoch"])
            self._sequences = position["sequences"]
            accelerator.step = 0
            self._whole = _sampler_of(loader) if self._sequences else None
            if self._whole is not None:
                loader.set_sampler(Skipping(self._whole, int(self._sequences)))
        if self.keeps is not None:
            kept = self.keeps(loader.total_batch_size // accelerator.num_processes)
            accelerator.gradient_accumulation_steps = kept or accelerator.gradient_accumulation_steps
        self._reports = agent.start(step=self._step, tokens=self._tokens, reporter=self)
        if self._reports:
            at_script_end(lambda: None if agent.should_stop() else agent.finish())

    def _synchronise(self, loader: Any) -> None:
        """Accumulate in a loop without `accumulate()` too, which sets the same."""
        if self.keeps is not None:
            steps = self._accelerator.gradient_accumulation_steps
            last = (self._micro_batches + 1) % steps == 0 or loader.end_of_dataloader
            self._accelerator.gradient_state._set_sync_gradients(last)

    def _end_of_batch(self, loader: Any) -> None:
        self._micro_batches += 1
        self._sequences += loader.total_batch_size
        if not self._stepped:
            return
        tokens = float(
            self._micro_batches * loader.total_batch_size * max(1, job_environment.layout().sequence_tokens)
        )
        loss = None if self._loss is None else float(self._loss) / self._micro_batches
        self._stepped, self._loss, self._micro_batches = False, None, 0
        self._step, self._tokens = self._step + 1, self._tokens + tokens
        agent.step(tokens=tokens, loss=loss)
        if agent.should_checkpoint():
            self._save()
        if agent.should_stop():
            sys.exit(0)  # saved: what follows the loop waits for the whole training

    def _save(self) -> None:
        accelerator = self._accelerator
        path = checkpoint_file(job_environment.checkpoint_directory("checkpoints"), self._step)
        accelerator.save_state(str(path))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            names = {"step": self._step, "tokens": self._tokens, "epoch": self._epoch}
            seal(path, {**names, "sequences": self._sequences})
            remove_older_files(path.parent)
        accelerator.wait_for_everyone()
        agent.checkpointed(os.path.abspath(path))
