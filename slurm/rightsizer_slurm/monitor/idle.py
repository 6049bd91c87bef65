"""Jobs whose GPUs are idle: the warning, and the suspension that a plan's `elasticity.whenIdle` may ask for.

A suspended job has saved, is requeued and held. Only its user or an administrator releases it.
"""

import datetime as dt
from collections.abc import Container

from rightsizer_api.quantities import format_time
from rightsizer_api.spec.resources import ElasticityMode, WhenIdle
from rightsizer_engine.domain.reading import Phase
from rightsizer_engine.resize.types import Action, Bottleneck, Decision
from rightsizer_engine.units import parse_duration_s
from rightsizer_engine.values import immutable
from rightsizer_slurm.monitor.inspection import InspectedJob


@immutable
class Suspension:
    """An idle job is suspended at `due_s` if it stays idle; `due`: that time has come."""

    since_s: float
    due_s: float
    due: bool

    @property
    def warning(self) -> str:
        """The warning to its owner."""
        at = format_time(dt.datetime.fromtimestamp(round(self.due_s), dt.UTC))
        return f"saved and held at {at} if it stays idle (elasticity.whenIdle); scontrol release continues it"


class IdleJobs:
    """Since when each job is idle without a break. In memory: a restart of the monitor is a break."""

    def __init__(self, *, break_s: float) -> None:
        """Looks that are further apart than `break_s` are a break."""
        self._break_s = break_s
        self._spans: dict[int, tuple[float, float]] = {}

    def seen(
        self, monitored: InspectedJob, decision: Decision, phase: Phase, *, now_s: float
    ) -> Suspension | None:
        """The suspension that the job's plan requests; None unless the job is idle."""
        job = monitored.job
        first_s, last_s = self._spans.pop(job.job_id, (now_s, now_s))
        if not (decision.action is Action.FLAG and decision.bottleneck is Bottleneck.IDLE and job.running):
            return None
        first_s = first_s if now_s - last_s <= self._break_s else now_s
        self._spans[job.job_id] = (first_s, now_s)
        spec = monitored.plan.spec if monitored.plan and monitored.ours else None
        if spec is None or spec.elasticity.when_idle is not WhenIdle.SUSPEND:
            return None
        if spec.resize_mode is ElasticityMode.OFF or not job.requeue:
            return None
        due_s = first_s + parse_duration_s(spec.elasticity.idle_grace)
        return Suspension(since_s=first_s, due_s=due_s, due=now_s >= due_s and phase is Phase.TRAINING)

    def forget(self, *, but: Container[int]) -> None:
        """Drop all jobs `but` these."""
        self._spans = {job_id: span for job_id, span in self._spans.items() if job_id in but}
