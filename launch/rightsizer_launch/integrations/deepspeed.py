"""One line for a training loop with DeepSpeed, after `deepspeed.initialize`.

    engine, optimizer, loader, scheduler = observed(deepspeed.initialize(...))

Every step is reported after `engine.step`, `engine.save_checkpoint` is called when a checkpoint is due, and
the script ends once rightsizer asks. Before the first batch `engine.load_checkpoint` resumes from the newest
complete checkpoint, unless the script has loaded one.

ZeRO's checkpoints hold a part of the optimizer for each worker. On another number of workers, or at another
stage of ZeRO, they are read as a universal checkpoint, which DeepSpeed's own converter makes of them.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from deepspeed import DeepSpeedEngine, PipelineEngine
from deepspeed.checkpoint import ds_to_universal
from deepspeed.runtime.dataloader import DeepSpeedDataLoader

from rightsizer_engine.errors import InputError
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


def observed(made: tuple[Any, ...]) -> tuple[Any, ...]:
    """Observe the engine and the loader that `deepspeed.initialize` returned; returns the same."""
    return _observed(made, by_plan=False) if job_environment.active() else made


def observed_by_plan(made: tuple[Any, ...]) -> tuple[Any, ...]:
    """Observe as above; the loader ends at the plan's tokens."""
    return _observed(made, by_plan=True)


def _observed(made: tuple[Any, ...], *, by_plan: bool) -> tuple[Any, ...]:
    engine, _, loader, _ = made
    if isinstance(engine, PipelineEngine):
        return made
    loop = _Loop(engine, loader, by_plan=by_plan)
    wrap(DeepSpeedEngine, "load_checkpoint", loop.load_checkpoint)
    wrap(DeepSpeedEngine, "backward", loop.backward)
    wrap(DeepSpeedEngine, "step", loop.step)
    wrap(DeepSpeedDataLoader, "__iter__", loop.epoch)
    wrap(DeepSpeedDataLoader, "__next__", loop.batch)
    return made


class _Loop:
    """The position of an engine's training, and of the DataLoader that DeepSpeed made for it."""

    def __init__(self, engine: Any, loader: Any, *, by_plan: bool) -> None:
        self._engine, self._loader, self._by_plan = engine, loader, by_plan
        self._step_tokens = float(
            engine.train_batch_size() * max(1, job_environment.layout().sequence_tokens)
        )
        self._loss: torch.Tensor | None = None
        self._began = self._resumed = self._reports = False
        self._micro_batches = self._step = self._left_out = 0
        self._tokens = 0.0

    def load_checkpoint(self, own: Callable[..., Any], engine: Any, *arguments: Any, **named: Any) -> Any:
        """Continue the count of steps and tokens of a checkpoint that the script loads."""
        output = own(engine, *arguments, **named)
        if engine is self._engine and output[0] is not None:
            self._resumed, self._step = True, engine.global_steps
            self._tokens = self._step * self._step_tokens
        return output

    def _begin(self) -> None:
        """Resume, and report the start; a script with the agent did so itself."""
        self._began = True
        if agent.reports():
            return
        if self._loader is None:
            remedy = "give the data set to deepspeed.initialize, whose batch and place in the data are kept"
            raise InputError("training_data", value=None, remedy=remedy)
        joined_by_all(torch.distributed.get_world_size())
        newest = None if self._resumed else newest_file(job_environment.checkpoint_directory("checkpoints"))
        if newest is not None:
            position = read_position(newest)
            _load(self._engine, Path(newest), position)
            self._step, self._tokens = int(position["step"]), position["tokens"]
            self._left_out = self._step * self._engine.train_batch_size()
        self._reports = agent.start(step=self._step, tokens=self._tokens, reporter=self)
        if self._reports:
            at_script_end(lambda: None if agent.should_stop() else agent.finish())

    def epoch(self, own: Callable[..., Any], loader: Any) -> Any:
        """An epoch of the data; those trained on before a restart have no batch any more."""
        if loader is self._loader and not self._began:
            self._begin()
        if loader is not self._loader or not self._left_out:
            return own(loader)
        whole = len(loader.dataset)
        skipped, self._left_out = min(whole, self._left_out), max(0, self._left_out - whole)
        sampler = loader.data_sampler
        loader.data_sampler = Skipping(sampler, skipped // self._engine.dp_world_size)
        iterator = own(loader)
        loader.data_sampler = sampler
        return iterator

    def batch(self, own: Callable[..., Any], loader: Any) -> Any:
        """The next batch, until the plan's tokens are trained on."""
        ends = self._by_plan and self._reports and self._tokens >= job_environment.target_tokens(float("inf"))
        if ends and loader is self._loader:
            raise StopIteration
        return own(loader)

    def backward(
        self, own: Callable[..., Any], engine: Any, loss: torch.Tensor, *more: Any, **named: Any
    ) -> Any:
        """Keep the loss of a micro-batch."""
        if engine is self._engine:
            if not self._began:
                self._begin()
            self._loss = loss.detach() if self._loss is None else self._loss + loss.detach()
            self._micro_batches += 1
        return own(engine, loss, *more, **named)

    def step(self, own: Callable[..., Any], engine: Any, *more: Any, **named: Any) -> Any:
        """Report the step after its last micro-batch; save and stop as the ranks agreed."""
        ends = engine is self._engine and self._reports and engine.is_gradient_accumulation_boundary()
        output = own(engine, *more, **named)
        if not ends:
            return output
        loss = None if self._loss is None else float(self._loss) / self._micro_batches
        self._loss, self._micro_batches = None, 0
        self._step, self._tokens = self._step + 1, self._tokens + self._step_tokens
        agent.step(tokens=self._step_tokens, loss=loss)
        if agent.should_checkpoint():
            self._save()
        if agent.should_stop():
            sys.exit(0)  # saved: what follows the loop waits for the whole training
        return output

    def _save(self) -> None:
        directory = job_environment.checkpoint_directory("checkpoints")
        path = checkpoint_file(directory, self._step)
        self._engine.save_checkpoint(str(directory), tag=path.name)
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            seal(path, {"step": self._step, "tokens": self._tokens, **_parts(self._engine)})
            remove_older_files(directory)
        torch.distributed.barrier()
        agent.checkpointed(os.path.abspath(path))


def _parts(engine: Any) -> dict[str, float]:
    """The number of parts of this engine's checkpoint."""
    workers, tensor = torch.distributed.get_world_size(), job_environment.layout().tp
    return {"workers": workers, "tensor": tensor, "stage": engine.zero_optimization_stage()}


def _load(engine: Any, saved: Path, position: Mapping[str, float]) -> None:
    """Resume an engine from a checkpoint of any number of workers."""
    parts = _parts(engine)
    if bool(position["stage"]) != bool(parts["stage"]):
        remedy = f"the checkpoint's is {position['stage']:g}: name it, as in framework: deepspeed-zero2"
        raise InputError("ZeRO stage", value=parts["stage"], remedy=remedy)
    if not parts["stage"] or all(position[name] == value for name, value in parts.items()):
        engine.load_checkpoint(str(saved.parent), tag=saved.name)
        return
    universal = saved.with_name(f"{saved.name}.universal")
    if torch.distributed.get_rank() == 0:
        _make_universal(saved, universal)
    torch.distributed.barrier()
    engine._config.load_universal_checkpoint = True  # the attribute of the config's checkpoint.load_universal
    engine.load_checkpoint(str(universal.parent), tag=universal.name)
    engine._config.load_universal_checkpoint = False
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        shutil.rmtree(universal, ignore_errors=True)


def _make_universal(saved: Path, universal: Path) -> None:
    shutil.rmtree(universal, ignore_errors=True)
    ds_to_universal.main(
        argparse.Namespace(
            input_folder=str(saved),
            output_folder=str(universal),
            num_extract_workers=1,
            num_merge_workers=1,
            keep_temp_folder=False,
            strict=True,
            inject_missing_state=True,
        )
    )
