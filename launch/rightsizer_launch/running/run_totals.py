"""Totals over a run's records: position, pace, repeated steps, time by phase."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import Record

PHASES = ("startup", "training", "checkpoint", "recovery")
"""Where wall time goes: launch to start, steps, saves, failure to restart."""

_WARM_UP_STEPS = 2  # the first steps after a start include lazy initialisation
_RECENT_STEPS = 50
_CURVE_POINTS = 50


@dataclass(slots=True)
class RunTotals:
    """Totals over the records added so far. Adding takes time in proportion to the new records alone.

    `best_step` is the furthest step ever reached; `lost_steps` were repeated. `launched_s` is the Unix time
    of each attempt's launch.
    """

    step: int = 0
    tokens: float = 0.0
    loss: float | None = None
    first_loss: float | None = None
    workers: int = 0
    pids: tuple[int, ...] = ()
    starts: int = 0
    best_step: int = 0
    lost_steps: int = 0
    tokens_per_s: float = 0.0
    saved_step: int = 0
    saved_time: float = 0.0
    saved_path: str = ""
    attempt: int = 0
    last_time: float = 0.0
    finished: bool = False
    phases_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    steps: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    launched_s: dict[int, float] = field(default_factory=dict)

    def add(self, records: Iterable[Record], *, launched_s: Mapping[int, float] | None = None) -> "RunTotals":
        """Add records in place; self. `launched_s` holds launches by attempt."""
        self.launched_s.update(launched_s or {})
        for record in records:
            self._add(record)
        return self

    def _add(self, record: Record) -> None:
        self.records.append(record)
        if record.event == "start":
            self._started(record)
        elif record.event == "step":
            self.loss = record.loss
            self.first_loss = record.loss if self.first_loss is None else self.first_loss
            self.best_step = max(self.best_step, record.step)
            self.tokens_per_s = record.tokens_per_s
            self._spend("training", record.step_s)
            self.steps.append(record)
        elif record.event == "checkpoint":
            self.saved_step, self.saved_time, self.saved_path = record.step, record.time, record.path
            self._spend("checkpoint", record.time - self.last_time)
        self.finished = self.finished or record.event == "finish"
        self.step, self.tokens, self.workers = record.step, record.tokens, record.world
        self.attempt, self.last_time = record.attempt, record.time

    def _started(self, record: Record) -> None:
        same = record.attempt == self.attempt
        since = self.last_time if same else self.launched_s.get(record.attempt) or record.time
        self.pids = record.pids
        self.starts += 1
        self.lost_steps += max(0, self.best_step - record.step)
        self.best_step = min(self.best_step, record.step)
        self._spend("recovery" if same else "startup", record.time - since)

    def _spend(self, phase: str, seconds: float) -> None:
        self.phases_s[phase] += max(0.0, seconds)

    def start_s(self, attempt: int) -> float:
        """Seconds from an attempt's launch to the end of its first step; 0: not known."""
        first = next((record for record in self.steps if record.attempt == attempt), None)
        launched = self.launched_s.get(attempt)
        return 0.0 if first is None or launched is None else max(0.0, first.time - launched)

    @property
    def checkpoint_s(self) -> float:
        """Mean write time of the checkpoints; 0: none."""
        saved = sum(record.event == "checkpoint" for record in self.records)
        return self.phases_s["checkpoint"] / saved if saved else 0.0

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The loss by step, thinned to about fifty points; the last value of a repeated step."""
        by_step = {record.step: record.loss for record in self.steps if record.loss is not None}
        points = sorted(by_step.items())
        stride = max(1, -(-len(points) // _CURVE_POINTS))
        return tuple(points[::stride])

    @property
    def recent_tokens_per_s(self) -> float | None:
        """The median pace of the latest warm steps; None before there are two."""
        warm = warm_steps(self.steps[-_RECENT_STEPS:], self.attempt)
        if len(warm) < 2 or warm[-1].step <= warm[0].step:
            return None
        tokens_per_step = (warm[-1].tokens - warm[0].tokens) / (warm[-1].step - warm[0].step)
        return tokens_per_step / max(statistics.median(r.step_s for r in warm), 1e-9)


@immutable
class Pace:
    """The measured pace of one attempt: medians over its steps after each start's warm-up."""

    attempt: int
    workers: int
    steps: int
    step_s: float
    tokens_per_s: float


def warm_steps(steps: Iterable[Record], attempt: int) -> list[Record]:
    """The steps of `attempt` past each start's warm-up, on as many workers as the last of them."""
    warm: list[Record] = []
    since_start, last = 0, None
    for record in steps:
        if record.attempt != attempt:
            continue
        key = (record.restart, record.world)
        since_start = since_start + 1 if key == last else 1
        last = key
        if since_start > _WARM_UP_STEPS:
            warm.append(record)
    return [record for record in warm if record.world == warm[-1].world]


def pace(steps: Iterable[Record], attempt: int, *, tokens_per_step: float) -> Pace | None:
    """The pace of `attempt`; None while it has no step past its warm-up."""
    warm = warm_steps(steps, attempt)
    if not warm:
        return None
    times = [record.step_s for record in warm]
    step_s = statistics.median(times)
    return Pace(
        attempt=attempt,
        workers=warm[-1].world,
        steps=len(times),
        step_s=step_s,
        tokens_per_s=tokens_per_step / max(step_s, 1e-9),
    )
