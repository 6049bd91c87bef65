"""Resizing a local run: the engine's policy decides from the run's records, the supervisor carries it out."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.resize.policy import decide, window_s
from rightsizer_engine.resize.scaling import PlanScaling, in_place_pins, recalibrate, size_from_option
from rightsizer_engine.resize.types import (
    Action,
    Decision,
    History,
    JobSize,
    Limits,
    Mode,
    Pressure,
    Running,
    Scaling,
)
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Option, Plan, Request
from rightsizer_launch.running.limits import (
    Tuning,
    gpu_bounds,
    limits_of,
    restart_s,
    running_of,
    seconds_left,
)
from rightsizer_launch.running.marks import Mark, marks_of, start_durations_s, trained_s
from rightsizer_launch.running.readings import reading_of
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.running.size_history import SizeChange, history_of, visits_of
from rightsizer_launch.worker.progress import ENV_CHECKPOINT_INTERVAL_S
from rightsizer_local.processes import JobSpec

MEASURED, FAILURE = "Measured", "Failure"
"""Causes of a change of size, as in a plan's status.resizes."""
_LOOK_EVERY_S = 2.0
_COOL_DOWN_WINDOWS = 6.0  # an hour at the default of ten minutes


class _MachineScaling:
    """Sizes of a machine whose workers slow each other down: one cluster for each number of workers."""

    def __init__(self, *, request: Request, option: Option, clusters: Sequence[Cluster]) -> None:
        self._request, self._option, self._clusters = request, option, clusters
        self._table: tuple[JobSize, ...] = ()

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[JobSize, ...]:
        """The best layout on each whole cluster, scaled by measured / predicted."""
        if not self._table:
            sizes = [size_from_option(self._option, self._option)]
            for cluster in self._clusters:
                request = replace(self._request, clusters=(cluster,), gpu_counts=(cluster.max_gpus,))
                response = size(request) if cluster.max_gpus != self._option.gpus else None
                sizes += (
                    [size_from_option(response.option, self._option)] if isinstance(response, Plan) else []
                )
            self._table = tuple(sorted(sizes, key=lambda size: size.gpus))
        return recalibrate(self._table, self._option, gpus=gpus, tokens_per_s=tokens_per_s, steps=steps)


def scaling_of(request: Request, option: Option, clusters: Sequence[Cluster]) -> Scaling:
    """The scaling of a run on this machine at its present batch size."""
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
        return _MachineScaling(request=free, option=option, clusters=clusters)
    return PlanScaling(request=free, option=option)


def tuning_of(*, settle_s: float) -> Tuning:
    """A size trains for `settle_s` before a decision, half of it warming up, and is kept for six times that.

    No other job waits for this machine, so unneeded workers are always released.
    """
    return Tuning(
        cap=Mode.AUTO,
        cool_down_s=settle_s * _COOL_DOWN_WINDOWS,
        warm_up_s=settle_s / 2,
        least_window_s=settle_s / 2,
        pressure=Pressure.ALWAYS,
    )


def history_of_attempts(attempts: Sequence[Mapping[str, Any]]) -> History:
    """Earlier resizes of a run, from the attempts in its run.json."""
    changes = []
    for before, after in itertools.pairwise(attempts):
        if after.get("cause"):
            failed = before["workers"] if after["cause"] == FAILURE else None
            changes.append(
                SizeChange(at_s=float(after["startedAt"]), failed_gpus=failed, from_gpus=before["workers"])
            )
    return history_of(changes)


@dataclass(slots=True)
class LocalResizer:
    """Decides about a run every two seconds and resizes it where the limits allow.

    `option` runs; `scaling` predicts its other sizes; `job` makes an option's job. A run that opened at its
    likely size grows up to `reserve_gpus`. `target_tokens` ends the run. `deadline_s` is Unix time, as is
    `clock`. `note` prints a line.
    """

    plan: TrainingPlan
    option: Option
    tuning: Tuning
    target_tokens: float
    deadline_s: float | None
    scaling: Callable[[Option], Scaling]
    job: Callable[[Option], JobSpec]
    reserve_gpus: int | None = None
    note: Callable[[str], None] = lambda _text: None
    clock: Callable[[], float] = time.time
    history: History = field(default_factory=History)
    decision: Decision | None = None
    decided_s: float = 0.0
    _scaling: Scaling | None = None
    _looked_s: float = 0.0
    _before: Option | None = None
    _reported: tuple[object, ...] = ()
    _marks: list[Mark] = field(default_factory=list)
    _kept: dict[int, dict[str, int]] = field(default_factory=dict)
    _records_read: int = 0

    def look(self, totals: RunTotals, spec: JobSpec) -> JobSpec | None:
        """The job to change to, if the policy decides to resize and may."""
        now_s = self.clock()
        if now_s - self._looked_s < _LOOK_EVERY_S or totals.attempt != spec.attempt:
            return None
        self._looked_s = now_s
        decision = self.decide(totals, spec, now_s=now_s)
        self._report(decision)
        if decision.action is not Action.KEEP:
            self.decision, self.decided_s = decision, now_s
        if not decision.act or decision.option is None:
            return None
        first = self.history.first_gpus or self.option.gpus
        self.history = replace(self.history, last_resize_s=now_s, first_gpus=first)
        self._before, self.option, self._scaling = self.option, decision.option, None
        return self.job(decision.option)

    def failed(self, spec: JobSpec) -> None:
        """Exclude a size that failed to start training; the size before it runs again."""
        failed = tuple(sorted({*self.history.failed_gpus, spec.workers}))
        self.history = replace(self.history, last_resize_s=self.clock(), failed_gpus=failed)
        if self._before is not None:
            self.option, self._scaling = self._before, None

    def last_change(self, workers: int) -> dict[str, str]:
        """The last change of the number of workers and its reason, as in status.resizes; empty: none."""
        if self._before is None or self.decision is None:
            return {"cause": "", "reason": ""}
        if workers in self.history.failed_gpus or workers != self.decision.gpus:
            return {"cause": FAILURE, "reason": f"{self.decision.gpus} worker(s) failed to start training"}
        return {"cause": MEASURED, "reason": self.decision.reason}

    def inputs(
        self, totals: RunTotals, spec: JobSpec, *, now_s: float
    ) -> tuple[Reading, Running, Limits, History]:
        """The inputs of the policy."""
        self._scaling = self._scaling or self.scaling(self.option)
        self._read(totals)
        interval = spec.environment.get(ENV_CHECKPOINT_INTERVAL_S)
        limits = limits_of(
            self.plan,
            self.tuning,
            gpus=self._bounds(),
            checkpoint_interval_s=None if interval is None else float(interval),
            restart_s=restart_s(
                start_durations_s(self._marks, totals.launched_s.values()), prior_s=self.tuning.restart_s
            ),
            saves_first=True,
            look_s=None if self.reserve_gpus is None else self.tuning.warm_up_s + self.tuning.least_window_s,
        )
        reading = reading_of(
            self._marks, now_s=now_s, window_s=window_s(limits), warm_up_s=self.tuning.warm_up_s
        )
        running = running_of(
            self.plan,
            reading,
            gpus=self.option.gpus,
            layout=self.option.layout,
            scaling=self._scaling,
            target_tokens=self.target_tokens,
            deadline_left_s=seconds_left(self.deadline_s, now_s=now_s),
            trained_s=trained_s(self._marks, now_s=now_s),
        )
        kept = self._kept[spec.attempt] = in_place_pins(self.option.layout)
        visited = visits_of(
            self._marks, layout=lambda mark: "" if self._kept.get(mark.run[0]) == kept else None
        )
        return reading, running, limits, replace(self.history, visited=visited)

    def _bounds(self) -> tuple[int, int | None]:
        """The fewest and the most GPUs: the plan's, and the reserve of an opening size."""
        fewest, most = gpu_bounds(self.plan)
        return fewest, min((n for n in (most, self.reserve_gpus) if n is not None), default=None)

    def decide(self, totals: RunTotals, spec: JobSpec, *, now_s: float) -> Decision:
        """The policy's decision on the present run."""
        return decide(*self.inputs(totals, spec, now_s=now_s), now_s=now_s)

    def _read(self, totals: RunTotals) -> None:
        """Convert the records since the last look."""
        after = self._marks[-1] if self._marks else None
        self._marks += marks_of(totals.records[self._records_read :], after=after)
        self._records_read = len(totals.records)

    def _report(self, decision: Decision) -> None:
        """A line for each new decision, not for each look."""
        news = (decision.action, decision.gpus, decision.act)
        if decision.action is Action.KEEP or news == self._reported:
            return
        self._reported = news
        flag = decision.action is Action.FLAG
        action = "flag" if flag else f"{decision.action} to {decision.gpus} worker(s)"
        withheld = f" (not done: {decision.withheld})" if decision.withheld else ""
        self.note(f"{action}: {decision.reason}{withheld}")
