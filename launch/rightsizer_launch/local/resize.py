"""Resizing a local run: its records are read, the engine's policy decides, the supervisor carries it out."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rightsizer.domain.hardware import Cluster
from rightsizer.domain.reading import Phase, Reading
from rightsizer.resize.policy import decide, window_s
from rightsizer.resize.scaling import PlanScaling, recalibrate, size_from_option
from rightsizer.resize.types import Action, Decision, History, Limits, Mode, Pressure, Running, Scaling, Size
from rightsizer.search.plan import plan
from rightsizer.search.types import Option, Plan, Request
from rightsizer_api.plan import TrainingPlan
from rightsizer_launch.local.machine import Machine
from rightsizer_launch.local.processes import JobSpec
from rightsizer_launch.run_totals import Tally, warm_steps
from rightsizer_launch.worker.progress import ENV_CHECKPOINT_INTERVAL_S, data_wait_fraction

__all__ = ["MachineScaling", "Resizer", "limits_of", "reading_of", "scaling_of"]

_LOOK_EVERY_S = 2.0
_SHORTEST_RESTART_S = 5.0
_COOL_DOWN_WINDOWS = 6.0  # an hour where a window is ten minutes


class MachineScaling:
    """Sizes of a machine whose workers slow each other down: one cluster for each number of them."""

    def __init__(self, *, request: Request, option: Option, clusters: Sequence[Cluster]) -> None:
        self._request, self._option, self._clusters = request, option, clusters
        self._table: tuple[Size, ...] = ()

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The best layout on each cluster in full, moved by measured / predicted."""
        if not self._table:
            found = [size_from_option(self._option, self._option)]
            for cluster in self._clusters:
                asked = replace(self._request, clusters=(cluster,), gpu_counts=(cluster.max_gpus,))
                answer = plan(asked) if cluster.max_gpus != self._option.gpus else None
                found += [size_from_option(answer.option, self._option)] if isinstance(answer, Plan) else []
            self._table = tuple(sorted(found, key=lambda size: size.gpus))
        return recalibrate(self._table, self._option, gpus=gpus, tokens_per_s=tokens_per_s, steps=steps)


def scaling_of(request: Request, option: Option, clusters: Sequence[Cluster]) -> Scaling:
    """How a run scales on this machine; the batch stays what it is."""
    workload = replace(request.workload, global_batch_sequences=option.global_batch_sequences)
    free = replace(
        request,
        workload=workload,
        batch_tolerance=0.0,
        deadline_s=None,
        max_usd=None,
        min_gpus=1,
        max_gpus=None,
        gpu_counts=(),
        spare_nodes=0,
    )
    if len(clusters) > 1:
        return MachineScaling(request=free, option=option, clusters=clusters)
    return PlanScaling(request=free, option=option)


def limits_of(plan: TrainingPlan, here: Machine, spec: JobSpec, *, settle_s: float) -> Limits:
    """What may be done to a run here. Nobody waits for this machine: what saves is given back.

    A size is measured for `settle_s` at least, half of it warming up, and kept for six times that.
    """
    elasticity, resources = plan.spec.elasticity, plan.spec.resources
    interval = spec.environment.get(ENV_CHECKPOINT_INTERVAL_S)
    return Limits(
        mode=Mode(elasticity.mode) if resources.gpus is None else Mode.OFF,
        min_gpus=elasticity.min_gpus or resources.min_gpus,
        max_gpus=min(elasticity.max_gpus or resources.max_gpus or here.workers, here.workers),
        checkpoint_interval_s=None if interval is None else float(interval),
        saves_first=True,
        least_window_s=settle_s,
        warm_up_s=settle_s / 2,
        cool_down_s=settle_s * _COOL_DOWN_WINDOWS,
        pressure=Pressure.ALWAYS,
    )


def reading_of(tally: Tally, *, attempt: int, longest_s: float, now_s: float) -> Reading:
    """What the records of the last `longest_s` say: each step wrote one, so none is missing."""
    warm = [r for r in warm_steps(tally.steps, attempt) if r.time > now_s - longest_s]
    if len(warm) < 2 or warm[-1].step <= warm[0].step:
        return Reading()
    tokens_per_step = (warm[-1].tokens - warm[0].tokens) / (warm[-1].step - warm[0].step)
    step_s = statistics.median(record.step_s for record in warm)
    window = warm[-1].time - warm[0].time
    return Reading(
        window_s=window,
        age_s=max(0.0, now_s - warm[-1].time),
        coverage=1.0,
        samples=len(warm),
        gpus=warm[-1].world,
        tokens_per_s=tokens_per_step / max(step_s, 1e-9),
        tokens_done=tally.tokens,
        steps=tally.step,
        window_steps=len(warm),
        data_wait_fraction=data_wait_fraction(warm[1:], over_s=window),
        phase=Phase.TRAINING,
        checkpoint_age_s=now_s - tally.saved_time if tally.saved_time else None,
        queries=(f"progress.jsonl: {len(warm)} steps, median {step_s:.4g} s",),
    )


@dataclass(slots=True)
class Resizer:
    """Looks at a run every now and then; says and, where it may, does what the policy decides.

    `option` runs; `scaling` makes its sizes, `job` the job of an option. `deadline_s` is a Unix moment;
    `note` tells people; `clock` is Unix time.
    """

    option: Option
    limits: Limits
    tokens: float
    deadline_s: float | None
    confidence: float
    scaling: Callable[[Option], Scaling]
    job: Callable[[Option], JobSpec]
    note: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = time.time
    history: History = field(default_factory=History)
    decision: Decision | None = None
    decided_s: float = 0.0
    _scaling: Scaling | None = None
    _looked_s: float = 0.0
    _before: Option | None = None
    _told: tuple[object, ...] = ()

    def look(self, tally: Tally, spec: JobSpec) -> JobSpec | None:
        """The job to change to, if the policy decides so and may."""
        now_s = self.clock()
        if now_s - self._looked_s < _LOOK_EVERY_S or tally.attempt != spec.attempt:
            return None
        self._looked_s = now_s
        found = self._decided(tally, spec, now_s)
        self._tell(found)
        if found.action is not Action.KEEP:
            self.decision, self.decided_s = found, now_s
        if not found.act or found.option is None:
            return None
        self.history = replace(self.history, last_resize_s=now_s, last_good_gpus=self.option.gpus)
        self._before, self.option, self._scaling = self.option, found.option, None
        return self.job(found.option)

    def failed(self, spec: JobSpec) -> None:
        """The size is not tried again; what ran before runs again."""
        self.history = replace(self.history, failed_gpus=(*self.history.failed_gpus, spec.workers))
        if self._before is not None:
            self.option, self._scaling = self._before, None

    def because(self, workers: int) -> str:
        """Why it runs with so many workers now; empty where nothing was resized."""
        if self._before is None or self.decision is None:
            return ""
        if workers in self.history.failed_gpus or workers != self.decision.gpus:
            return f"{self.decision.gpus} worker(s) did not come to train"
        return self.decision.reason

    def _decided(self, tally: Tally, spec: JobSpec, now_s: float) -> Decision:
        self._scaling = self._scaling or self.scaling(self.option)
        reading = reading_of(tally, attempt=spec.attempt, longest_s=2.0 * window_s(self.limits), now_s=now_s)
        warm = warm_steps(tally.steps, spec.attempt)
        running = Running(
            gpus=self.option.gpus,
            layout=self.option.layout,
            scaling=self._scaling,
            tokens_left=max(0.0, self.tokens - tally.tokens),
            deadline_left_s=None if self.deadline_s is None else self.deadline_s - now_s,
            confidence=self.confidence,
            trained_s=now_s - warm[0].time if warm else None,
        )
        limits = replace(self.limits, restart_s=_restart_s(tally))
        return decide(reading, running, limits, self.history, now_s=now_s)

    def _tell(self, found: Decision) -> None:
        """A line for each new finding, not for each look."""
        told = (found.action, found.gpus, found.act)
        if found.action is Action.KEEP or told == self._told:
            return
        self._told = told
        what = "flag" if found.action is Action.FLAG else f"{found.action} to {found.gpus} worker(s)"
        withheld = f" (not done: {found.withheld})" if found.withheld else ""
        self.note(f"{what}: {found.reason}{withheld}")


def _restart_s(tally: Tally) -> float:
    """What a start took so far, from the launch to the first step."""
    return max(_SHORTEST_RESTART_S, tally.phases_s["startup"] / max(1, tally.starts))
