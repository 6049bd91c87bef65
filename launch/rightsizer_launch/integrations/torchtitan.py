"""Observes a training of torchtitan: one line in a script that builds its `Trainer` itself.

    trainer = config.build()
    observed(trainer).train()

It reports every step, saves when a checkpoint is due, and saves and stops when rightsizer asks for it. A plan
whose `launch.framework` is torchtitan does not need the line: `rightsizer_launch.stacks` adds it.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader

from rightsizer_engine.errors import InputError
from rightsizer_launch.integrations.checkpoints import newest_dcp_checkpoint
from rightsizer_launch.integrations.wrapping import wrap
from rightsizer_launch.worker import agent, job_environment

_DATALOADER = "dataloader"
"""torchtitan's key of the data's position in a checkpoint."""


def observed(trainer: Any) -> Any:
    """The trainer, observed. Without rightsizer nothing changes."""
    if job_environment.active():
        if not trainer.config.checkpoint.enable:
            raise InputError("checkpoint.enable", value=False, remedy="set it: a stop saves first")
        _Observer(trainer)
    return trainer


class _Observer:
    """Wraps what a `Trainer` calls at its step boundaries, on the instance only.

    A step counts global batch x sequence length tokens. The loss is the last one that torchtitan logged
    (`metrics.log_freq`); with pipelines, that of the ranks with the last stage.
    """

    def __init__(self, trainer: Any) -> None:
        training, dims = trainer.config.training, trainer.parallel_dims
        self._trainer, self._checkpointer = trainer, trainer.checkpointer
        self._data_ranks = dims.get_mesh("batch").size() if dims.dp_enabled else 1
        self._batches = trainer.gradient_accumulation_steps * trainer.num_pipeline_parallel_microbatches
        sequences = trainer.gradient_accumulation_steps * training.local_batch_size * self._data_ranks
        self._tokens = float(sequences * training.seq_len)
        self._loss: float | None = None
        self._skipped = 0
        self._reports = False
        wrap(self._checkpointer, "load", self._load)
        wrap(self._checkpointer, "save", self._save)
        wrap(trainer.metrics_processor, "log", self._log)
        wrap(trainer, "batch_generator", self._data)
        wrap(trainer, "train_step", self._step)
        wrap(trainer, "should_continue_training", self._continues)
        if trainer.config.validator.enable:
            wrap(trainer.validator, "validate", self._validate)

    @property
    def stops(self) -> bool:
        """True if rightsizer requested the end of the training."""
        return self._reports and agent.should_stop()

    def _load(self, load: Callable[[int], bool], step: int = -1) -> bool:
        """Load, and report the start. The data's position loads only into as many ranks as saved it."""
        again = step == -1 and _data_ranks(self._checkpointer.folder) not in {None, self._data_ranks}
        if again:
            self._checkpointer.exclude_from_loading = [*self._checkpointer.exclude_from_loading, _DATALOADER]
        loaded = load(step)
        self._skipped = self._trainer.step * self._batches if again else 0
        self._reports = agent.start(
            step=self._trainer.step, tokens=self._trainer.step * self._tokens, reporter=self
        )
        return loaded

    def _data(
        self, generate: Callable[[Iterable[Any]], Iterator[Any]], loader: Iterable[Any]
    ) -> Iterator[Any]:
        """The batches of the steps to come: a loader that starts anew gives those of earlier steps first."""
        batches = iter(loader)
        next(itertools.islice(batches, self._skipped, self._skipped), None)
        return generate(batches)

    def _log(
        self, log: Callable[..., None], step: int, global_avg_loss: float, *more: Any, **named: Any
    ) -> None:
        shows = not self._trainer.parallel_dims.pp_enabled or self._trainer.pp_has_last_stage
        self._loss = global_avg_loss if shows else None
        log(step, global_avg_loss, *more, **named)

    def _step(self, train_step: Callable[[Any], None], batches: Any) -> None:
        train_step(batches)
        if self._reports:
            agent.step(tokens=self._tokens, loss=self._loss)

    def _save(self, save: Callable[..., bool], step: int, last_step: bool = False) -> bool:
        """Save also at rightsizer's request, with all that resuming needs; a last step may leave it out."""
        if not self._reports:
            return save(step, last_step=last_step)
        interval = self._checkpointer.interval
        if agent.should_checkpoint():
            self._checkpointer.interval = 1
        saved = save(step, last_step=last_step and not self.stops)
        self._checkpointer.interval = interval
        if saved:
            self._checkpointer.maybe_wait_for_saving()
            dist.barrier()
            agent.checkpointed(Path(self._checkpointer.folder).resolve() / f"step-{step}")
        return saved

    def _continues(self, should_continue: Callable[[], bool]) -> bool:
        return should_continue() and not self.stops

    def _validate(self, validate: Callable[..., None], *arguments: Any, **named: Any) -> None:
        with agent.evaluating() if self._reports else contextlib.nullcontext():
            validate(*arguments, **named)


def _data_ranks(folder: str) -> int | None:
    """Data-parallel ranks of the newest complete checkpoint; None without their positions in the data."""
    newest = newest_dcp_checkpoint(folder)
    if newest is None:
        return None
    keys = FileSystemReader(newest).read_metadata().state_dict_metadata
    return sum(key.startswith(f"{_DATALOADER}.dp_rank_") for key in keys) or None
