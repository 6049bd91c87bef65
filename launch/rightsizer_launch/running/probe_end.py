"""The end of a probe on every executor: enough is measured, or its time is over; its checkpoints go."""

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.errors import InputError
from rightsizer_engine.estimate.evidence import noise_ln
from rightsizer_engine.estimate.parameters import load_calibration
from rightsizer_engine.units import format_duration
from rightsizer_launch.running.run_totals import RunTotals, warm_steps
from rightsizer_launch.worker.progress import Record

_ENOUGH = 1.2
"""Measure until the noise is at most this multiple of what differs between two equal runs. A choice."""
_LEAST_STEPS = 10
ENOUGH_STEPS = 60
"""Steps after which a probe ends where their scatter is not known. A choice."""


def has_enough(steps: Iterable[Record], attempt: int) -> bool:
    """Whether more steps would hardly tell more: what differs between equal runs outweighs the noise."""
    times = [record.step_s for record in warm_steps(steps, attempt) if record.step_s > 0]
    if len(times) < _LEAST_STEPS:
        return False
    noise = noise_ln(len(times), float(np.log(times).std(ddof=1)))
    return noise <= _ENOUGH * load_calibration().step_between_runs


@dataclass(slots=True)
class TimeLimit:
    """Stops a run when `limit_s` have passed since its first look, or when enough steps are measured."""

    limit_s: float
    clock: Callable[[], float] = time.monotonic
    began_s: float | None = None
    fired: bool = False

    def __call__(self, totals: RunTotals) -> str:
        """Why the run ends now; empty: it goes on."""
        now_s = self.clock()
        self.began_s = now_s if self.began_s is None else self.began_s
        reason = ""
        if totals.steps and has_enough(totals.steps, totals.attempt):
            reason = f"measured {len(totals.steps)} steps; more would hardly tell more"
        elif now_s - self.began_s >= self.limit_s:
            reason = f"the time of the probe is over ({format_duration(self.limit_s)})"
        self.fired = self.fired or bool(reason)
        return reason


def remove_checkpoints(plan: TrainingPlan, run_directory: Path) -> None:
    """A probe's checkpoints lie in a folder of its own; a later probe must not resume from them."""
    checkpoint = plan.spec.launch.checkpoint
    if checkpoint is None:
        return
    folder = run_directory / checkpoint.path  # an absolute path stays as it is
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(
            "checkpoint.path", value=str(folder), remedy=f"cannot be removed: {error.strerror}"
        ) from None
