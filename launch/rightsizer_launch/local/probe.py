"""`rightsizer probe` on this machine: the code of `rightsizer run`, stopped once enough is measured."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rightsizer.domain.hardware import Cluster
from rightsizer.domain.observation import Observation
from rightsizer.errors import InputError
from rightsizer.search.plan import plan as size
from rightsizer.search.types import NoPlan, Plan
from rightsizer.units import format_duration
from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_launch import calibration
from rightsizer_launch.local import machine
from rightsizer_launch.local.run import EXIT_CODES, Options, run, sized_here
from rightsizer_launch.local.supervisor import Ending
from rightsizer_launch.probe import Interrupted, Probe, has_enough, no_steps
from rightsizer_launch.run_totals import RunTotals

__all__ = ["LocalProbe", "TimeLimit", "remove_checkpoints"]


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


@dataclass(slots=True)
class LocalProbe:
    """Probes on this machine; `directory` holds the run (default runs/NAME-probe)."""

    here: machine.Machine
    console: Console
    directory: Path | None = None

    @property
    def clusters(self) -> Sequence[Cluster]:
        """Where the probe may run."""
        return self.here.clusters

    def answer(self, plan: TrainingPlan) -> Plan | NoPlan:
        """The plan sized for the GPU types that it names, else for this machine."""
        if not plan.spec.resources.gpu_types:
            return sized_here(plan, self.here).answer
        request = sizing.resolve(plan).request()
        return size(calibration.calibrated(request), compared=False)

    def measure(self, probe: Probe) -> tuple[Observation, ...]:
        """Run the probe, remove its checkpoints, and return what it measured."""
        path = (self.directory or Path("runs") / probe.plan.metadata.name).resolve()
        limit = TimeLimit(limit_s=probe.limit_s)
        remove_checkpoints(probe.plan, path)
        code = run(
            probe.plan,
            Options(directory=path, anyway=True, fresh=True, until=limit, record=False),
            console=self.console,
            detect=lambda **_: self.here,
        )
        remove_checkpoints(probe.plan, path)
        if code == EXIT_CODES[Ending.STOPPED] and not limit.fired:
            raise Interrupted
        report = json.loads((path / "report.json").read_text())
        observations = calibration.report_observations(report, name="report.json")
        if not observations:
            raise no_steps(probe, failed=code == EXIT_CODES[Ending.FAILED])
        return observations


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
