"""The end of a probe on every executor: enough is measured, or its time is over; its checkpoints go."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.errors import InputError
from rightsizer_engine.units import format_duration
from rightsizer_launch.running.probe import has_enough
from rightsizer_launch.running.run_totals import RunTotals


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
