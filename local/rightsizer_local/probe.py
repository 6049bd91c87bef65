"""`rightsizer probe` on this machine: the code of `rightsizer run`, stopped once enough is measured."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from rightsizer_api import sizing
from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, Probe, no_steps
from rightsizer_launch.running.probe_end import TimeLimit, remove_checkpoints
from rightsizer_local import machine
from rightsizer_local.local_sizing import sized_here
from rightsizer_local.run import EXIT_CODES, Options, run
from rightsizer_local.supervisor import Ending


@dataclass(slots=True)
class LocalProbe:
    """Probes on this machine; `directory` holds the run (default runs/NAME-probe)."""

    here: machine.Machine
    console: Console
    directory: Path | None = None

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The clusters on which the probe may run."""
        return self.here.clusters

    def answer(self, plan: TrainingPlan) -> Plan | NoPlan:
        """The plan sized for the GPU types that it names, else for this machine."""
        if not plan.spec.resources.gpu_types:
            return sized_here(plan, self.here).response
        request = sizing.resolve(plan).request()
        return size(calibration.calibrated(request), compared=False)

    def measure(self, probe: Probe) -> tuple[Observation, ...]:
        """Run the probe, remove its checkpoints, and return the measurements."""
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
