"""`rightsizer probe --slurm`: a small job of `rightsizer sbatch`, followed and ended once it has measured."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rightsizer_api import dump
from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.search.types import NoPlan, Plan
from rightsizer_engine.units import format_duration
from rightsizer_launch.running import calibration
from rightsizer_launch.running.probe import Interrupted, Probe, no_steps
from rightsizer_launch.running.probe_end import TimeLimit, remove_checkpoints
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import PROGRESS, ProgressReader
from rightsizer_launch.worker_spec import grace_s
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.pools import clusters
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.sbatch.command import SbatchOptions, allowed_pools, fit_plan, read_site, submit_plan
from rightsizer_slurm.submit.placement import Placement

_LOOK_S = 2.0
_END_S = 60.0
"""Beyond the workers' grace, time for Slurm to end the job. A choice."""


@dataclass(slots=True)
class SlurmProbe:
    """Probes on this Slurm cluster; `options.directory` holds the run (default runs/NAME-probe-TAG)."""

    options: SbatchOptions
    say: Callable[[str], None]
    slurm: Slurm | None = None
    environment: Mapping[str, str] | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @property
    def _variables(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment

    @property
    def _backend(self) -> SlurmCommands:
        return SlurmCommands(self.slurm)

    @property
    def clusters(self) -> Sequence[Cluster]:
        """The partitions as clusters; those of the plan are known once it has been sized."""
        return self._clusters

    _clusters: tuple[Cluster, ...] = ()

    def answer(self, plan: TrainingPlan) -> Plan | NoPlan:
        """The plan as `rightsizer sbatch` would size it."""
        site = read_site(self._backend.slurm)
        pools = allowed_pools(plan, self.options, site, self._variables)
        self._clusters = tuple(cluster for _, cluster in clusters(pools, free=False))
        placed = fit_plan(plan, pools, self.options, site)
        return placed.sized if isinstance(placed, Placement) else placed

    def measure(self, probe: Probe) -> tuple[Observation, ...]:
        """Submit the probe, follow it, end it, and return the measurements."""
        folder = (self.options.directory or Path("runs") / probe.plan.metadata.name).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "probe.yaml"
        file.write_text(dump(probe.plan))
        submitted: list[tuple[Placement, int]] = []
        submit_plan(
            file,
            replace(self.options, directory=folder),
            say=self.say,
            slurm=self.slurm,
            environment=self._variables,
            submitted=lambda placed, job: submitted.append((placed, job)),
        )
        if not submitted:
            raise no_steps(probe, failed=True)
        placed, job = submitted[0]
        totals = self._follow(probe, job, folder / PROGRESS)
        remove_checkpoints(probe.plan, folder)
        observations = calibration.observed(
            placed.sized.request,
            placed.option,
            run=f"{probe.plan.metadata.name}/{job}",
            steps=totals.steps,
            attempt=totals.attempt,
            start_s=totals.start_s(totals.attempt),
            checkpoint_s=totals.checkpoint_s,
        )
        if not observations:
            self.say(f"the job's output: {folder}/slurm-{job}.out")
            raise no_steps(probe, failed=not totals.steps and not self._expired)
        return observations

    _expired: bool = False

    def _follow(self, probe: Probe, job: int, progress: Path) -> RunTotals:
        """The job's records up to its end; the job is gone afterwards, whatever happens."""
        reader, totals = ProgressReader(progress), RunTotals()
        limit = TimeLimit(limit_s=probe.limit_s, clock=self.clock)
        try:
            while (now := self._backend.job(job)) is not None and now.live:
                totals.add(reader.read(), launched_s={1: now.started_s} if now.started_s else None)
                reason = limit(totals) if now.running else ""
                if reason:
                    self.say(reason)
                    self._end(probe, job)
                    break
                self.sleep(_LOOK_S)
        except KeyboardInterrupt:
            raise Interrupted from None
        finally:
            self._expired = limit.fired
            self._cancel(job)
        return totals.add(reader.read())

    def _end(self, probe: Probe, job: int) -> None:
        """Let the workers save and stop, as at the time limit; wait for it."""
        self._backend.signal_script(job, "USR1")
        until_s = self.clock() + grace_s(probe.plan) + _END_S
        while self.clock() < until_s:
            now = self._backend.job(job)
            if now is None or not now.live:
                return
            self.sleep(_LOOK_S)
        self.say(f"the job has not ended within {format_duration(grace_s(probe.plan) + _END_S)}: cancelled")

    def _cancel(self, job: int) -> None:
        """No job stays behind; one that has ended needs no cancellation."""
        now = self._backend.job(job)
        if now is not None and now.live:
            self._backend.slurm.run("scancel", str(job))
