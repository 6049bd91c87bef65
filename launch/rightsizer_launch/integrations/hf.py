"""The callback for transformers' `Trainer` and all built on it (TRL, Axolotl, LLaMA-Factory).

    trainer = Trainer(..., callbacks=[RightsizerCallback()])
    trainer.train(resume_from_checkpoint=newest_checkpoint(args.output_dir))

It reports every step, saves when a checkpoint is due, and saves and stops when rightsizer asks for it. A plan
whose `launch.framework` is transformers needs neither line: `rightsizer_launch.stacks` adds both.
"""

import contextlib
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rightsizer_launch.integrations.checkpoints import newest_checkpoint
from rightsizer_launch.integrations.workers import joined_by_all
from rightsizer_launch.worker import agent, job_environment
from rightsizer_launch.worker.process_end import at_script_end

__all__ = ["RightsizerCallback", "newest_checkpoint"]


class RightsizerCallback(TrainerCallback):
    """Reports the first training of a script; a second `train()` of the same script is not observed.

    A step counts `globalBatchSequences` x `sequenceLength` tokens of the plan; padding is not subtracted.
    """

    def __init__(self) -> None:
        self._loss: torch.Tensor | None = None
        self._logged: float | None = None
        self._step_tokens = 0.0
        self._trains = False
        self._was_observed = False
        self._evaluation = contextlib.ExitStack()

    def add_loss(self, loss: torch.Tensor) -> None:
        """Add a micro-batch's share of the step's loss, as `Trainer.training_step` returns it."""
        self._loss = loss if self._loss is None else self._loss + loss

    @property
    def stops(self) -> bool:
        """True if rightsizer requested the end of the training."""
        return self._trains and agent.should_stop()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_more: Any
    ) -> None:
        """Report the start, at the step that was resumed from."""
        self._trains = job_environment.active() and not self._was_observed and not state.is_hyper_param_search
        if not self._trains:
            return
        self._was_observed = True
        layout = job_environment.layout()
        joined_by_all(args.world_size)
        sequences = args.per_device_train_batch_size * args.gradient_accumulation_steps * layout.dp
        self._step_tokens = float(sequences * max(1, layout.sequence_tokens))
        tokens = state.global_step * self._step_tokens
        self._trains = agent.start(step=state.global_step, tokens=tokens, reporter=self)

    def on_step_end(
        self, _args: TrainingArguments, _state: TrainerState, control: TrainerControl, **_more: Any
    ) -> None:
        """Report a step; save and stop as the ranks agreed."""
        if not self._trains:
            return
        loss = self._logged if self._loss is None else float(self._loss)
        self._loss = None
        agent.step(tokens=self._step_tokens, loss=loss)
        control.should_save = control.should_save or agent.should_checkpoint()
        control.should_training_stop = control.should_training_stop or agent.should_stop()
        if control.should_evaluate:
            self._evaluation.enter_context(agent.evaluating())

    def on_evaluate(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_more: Any
    ) -> None:
        """The time of an evaluation belongs to no step."""
        self._evaluation.close()

    def on_log(
        self,
        _args: TrainingArguments,
        _state: TrainerState,
        _control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_more: Any,
    ) -> None:
        """Keep the logged loss, for steps whose own is not known."""
        self._logged = (logs or {}).get("loss", self._logged)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, _control: TrainerControl, **_more: Any
    ) -> None:
        """Report a checkpoint once every rank has written its part."""
        if not self._trains:
            return
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
        agent.checkpointed(Path(args.output_dir).resolve() / f"checkpoint-{state.global_step}")

    def on_train_end(
        self, _args: TrainingArguments, _state: TrainerState, _control: TrainerControl, **_more: Any
    ) -> None:
        """Report completion when the script ends: it may still evaluate and save the model."""
        if self._trains and not agent.should_stop():
            at_script_end(agent.finish)
        self._trains = self._trains and agent.should_stop()
