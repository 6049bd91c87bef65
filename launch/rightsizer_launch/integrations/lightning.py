"""The callback for Lightning's `Trainer`, of `lightning` and `pytorch_lightning` alike.

    trainer = Trainer(..., callbacks=[RightsizerCallback()])
    trainer.fit(model, loader, ckpt_path=newest_checkpoint(directory))

It reports every step, saves when a checkpoint is due, and saves and stops when rightsizer asks for it. A plan
whose `launch.framework` is lightning needs neither line: `rightsizer_launch.stacks` adds both.
"""

import contextlib
import sys
from pathlib import Path
from typing import Any

from rightsizer_launch.integrations.checkpoints import (
    PARTIAL,
    checkpoint_file,
    newest_file,
    remove_older_files,
    seal,
)
from rightsizer_launch.integrations.data_position import batch_size_of, skip_first
from rightsizer_launch.integrations.workers import joined_by_all
from rightsizer_launch.worker import agent, job_environment
from rightsizer_launch.worker.process_end import at_script_end

if "pytorch_lightning" in sys.modules:
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback

_SUFFIX = ".ckpt"


def newest_checkpoint(directory: str | Path) -> str | None:
    """The newest complete checkpoint that the callback saved in a directory, as `ckpt_path` takes it."""
    return newest_file(directory, suffix=_SUFFIX)


class RightsizerCallback(Callback):
    """Reports the first `fit` of a script; checkpoints go to `launch.checkpoint.path` or the run's directory.

    A step counts `sequenceLength` tokens of the plan for each sequence of its batches.
    """

    state_key = "RightsizerCallback"

    def __init__(self) -> None:
        self._loss = 0.0
        self._step = 0
        self._tokens = 0.0
        self._micro_batches = 0
        self._sequences = 0
        self._skipped = 0
        self._trains = False
        self._was_observed = False
        self._evaluation = contextlib.ExitStack()

    @property
    def stops(self) -> bool:
        """True if rightsizer requested the end of the training."""
        return self._trains and agent.should_stop()

    def state_dict(self) -> dict[str, Any]:
        """The tokens so far, and the sequences that all workers have in a batch together."""
        return {"tokens": self._tokens, "sequences": self._sequences}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the count of tokens."""
        self._tokens, self._sequences = state_dict["tokens"], state_dict["sequences"]

    def on_train_start(self, trainer: Any, _module: Any) -> None:
        """Report the start, at the step that was resumed from and at its place in the data."""
        self._trains = job_environment.active() and not self._was_observed
        if not self._trains:
            return
        self._was_observed = True
        joined_by_all(trainer.world_size)
        saved, self._sequences = self._sequences, batch_size_of(trainer.train_dataloader) * trainer.world_size
        if saved:
            self._move_to(trainer, saved)
        self._step = trainer.global_step
        self._trains = agent.start(step=self._step, tokens=self._tokens, reporter=self)

    def _move_to(self, trainer: Any, saved: int) -> None:
        """Count the batches of the checkpoint as this number of workers does, and leave out those trained on.

        Lightning restores the number of a batch; it does not move a DataLoader there.
        """
        progress = trainer.fit_loop.epoch_loop.batch_progress
        for counts in (progress.total, progress.current):
            batches = counts.processed * saved // self._sequences
            behind = counts.processed - counts.completed
            counts.ready = counts.started = counts.processed = batches
            counts.completed = batches - behind
        current = progress.current.processed
        epoch_ended = current >= trainer.num_training_batches
        skip_first(trainer.train_dataloader, 0 if epoch_ended else current)
        sampler = trainer.train_dataloader.sampler
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
        iter(trainer.fit_loop._data_fetcher)  # a private name: its iterator began before this hook

    def on_train_batch_end(
        self, trainer: Any, _module: Any, outputs: Any, _batch: Any, _batch_idx: int
    ) -> None:
        """Report a step after its last micro-batch; save and stop as the ranks agreed."""
        if not self._trains:
            return
        self._micro_batches += 1
        self._loss += float(outputs["loss"]) if outputs else 0.0
        if trainer.global_step == self._step:
            return
        tokens = float(
            self._micro_batches * self._sequences * max(1, job_environment.layout().sequence_tokens)
        )
        self._step, self._tokens = trainer.global_step, self._tokens + tokens
        agent.step(tokens=tokens, loss=self._loss)
        self._micro_batches, self._loss = 0, 0.0
        if agent.should_checkpoint():
            self._save(trainer)
        if agent.should_stop():
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = 0
            trainer.limit_val_batches = 0
            trainer.should_stop = True

    def _save(self, trainer: Any) -> None:
        path = checkpoint_file(
            job_environment.checkpoint_directory(trainer.default_root_dir), self._step, _SUFFIX
        )
        partial = path.with_name(path.name + PARTIAL)
        trainer.save_checkpoint(partial)
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            partial.replace(path)
            if path.is_dir():
                seal(path, {})
            remove_older_files(path.parent, suffix=_SUFFIX)
        trainer.strategy.barrier()
        agent.checkpointed(path.resolve())

    def on_validation_start(self, _trainer: Any, _module: Any) -> None:
        """The time of an evaluation belongs to no step."""
        if self._trains:
            self._evaluation.enter_context(agent.evaluating())

    def on_validation_end(self, _trainer: Any, _module: Any) -> None:
        """Count time for steps again."""
        self._evaluation.close()

    def on_train_end(self, _trainer: Any, _module: Any) -> None:
        """Report completion when the script ends: it may still test and save the model."""
        if self._trains and not agent.should_stop():
            at_script_end(agent.finish)
        self._trains = self._trains and agent.should_stop()
