"""Replay a job trace under a policy, first come, first served; `resize.decide` sizes the jobs. Pure."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.fleet.trace_jobs import (
    HOUR_S,
    Policy,
    ReplayOutcome,
    ReplayRules,
    StartSize,
    TraceJob,
    TraceScaling,
    counts,
    half,
    missed,
    most_gpus,
    relative_s,
    timeline,
)
from rightsizer_engine.resize.policy import decide, window_s
from rightsizer_engine.resize.types import Action, Decision, History, Pressure, Running, Visit

_STEP_S = 10.0
"""Seconds of an optimizer step, to count steps in a window. A guess; any window has hundreds of steps."""

_SAMPLE_S = 30.0
"""Seconds between samples, dcgm-exporter's default."""

_MOST_HALVINGS = 20
"""Decisions of an opening: one halves a job at most, and no job has 2^20 GPUs."""


@dataclass(slots=True)
class _JobState:
    """One job's state: `left` work remained at `since_s`; from then on it trains at `rate`."""

    job: TraceJob
    index: int
    sizes: tuple[int, ...]
    left: float
    gpus: int = 0
    rate: float = 0.0
    since_s: float = 0.0
    held_since_s: float = 0.0
    version: int = 0
    look_s: float = 0.0
    history: History = field(default_factory=History)

    def left_at(self, now_s: float) -> float:
        """Work left at `now_s`."""
        return max(0.0, self.left - self.rate * max(0.0, now_s - self.since_s))

    @property
    def measured(self) -> float:
        """The rate that a measurement shows."""
        return self.rate * math.exp(self.job.measured_error_ln)


_ARRIVES, _ENDS, _LOOKS = 0, 1, 2


class _Replay:
    """The event loop under one policy."""

    def __init__(self, jobs: Sequence[TraceJob], gpus: int, policy: Policy, rules: ReplayRules) -> None:
        self.policy, self.rules, self.free = policy, rules, gpus
        self.limits = replace(rules.limits, pressure=policy.pressure or Pressure.ON_PRESSURE)
        self.state = [
            _JobState(job, i, counts(job.gpus, min(gpus, most_gpus(job, rules))), job.duration_s)
            for i, job in enumerate(jobs)
        ]
        self.queue: deque[_JobState] = deque()
        self.started, self.finished = [0.0] * len(jobs), [0.0] * len(jobs)
        self.hours = [0.0] * len(jobs)
        self.resizes, self.lost_hours = 0, 0.0
        self.decisions: dict[str, int] = {}
        self.changes: list[tuple[float, int]] = []
        self.first_look_s = max(rules.limits.warm_up_s, rules.limits.least_window_s, 1800.0)
        self.whole_window_s = window_s(rules.limits)
        self.events = [(state.job.submitted_s, _ARRIVES, state.index, 0) for state in self.state]
        heapq.heapify(self.events)

    def run(self) -> None:
        """Process events until none is left."""
        while self.events:
            now_s, kind, index, version = heapq.heappop(self.events)
            state = self.state[index]
            if kind == _ARRIVES:
                self.queue.append(state)
                self.admit(now_s)
            elif version == state.version and kind == _ENDS:
                self.end(state, now_s)
                self.admit(now_s)
            elif version == state.version:
                self.decide_resize(state, now_s)

    def admit(self, now_s: float) -> None:
        """Start the queued jobs in order, as long as the next one fits."""
        while self.queue:
            gpus = self.opening_gpus(self.queue[0], now_s)
            if gpus > self.free:
                return
            state = self.queue.popleft()
            self.started[state.index] = state.held_since_s = now_s
            state.history = replace(state.history, first_gpus=gpus)
            self.set_size(state, gpus, now_s, restart_s=0.0)

    def opening_gpus(self, state: _JobState, now_s: float) -> int:
        """The size that a job starts with."""
        requested = state.job.gpus
        match self.policy.opening:
            case StartSize.ONE:
                return 1
            case StartSize.HALF:
                return half(requested)
            case StartSize.STAGED:
                return self.staged_gpus(state, now_s)
        return requested

    def staged_gpus(self, state: _JobState, now_s: float) -> int:
        """The size to which the resize policy would take the job if its predicted rate were measured.

        A job that is looked at long before its deadline opens at even odds, since the look corrects it. A
        shorter one opens at the confidence, and never below its request: nobody would notice that it is late.
        """
        job, rules, gpus = state.job, self.rules, state.job.gpus
        left_s = math.inf if job.deadline_s is None else job.deadline_s - now_s
        looked_at = left_s > rules.opening_looks * (self.first_look_s + rules.limits.restart_s)
        for _ in range(_MOST_HALVINGS):
            away = math.log(gpus / job.gpus)
            decision = self.judge(
                state,
                gpus=gpus,
                rate=math.exp(job.rate_error_ln + rules.believed_exponent * away),
                rate_sigma=math.hypot(rules.start_sigma, rules.exponent_sigma * away),
                confidence=0.5 if looked_at else rules.confidence,
                now_s=now_s,
                opening=True,
            )
            if not decision.act or decision.gpus == gpus or (decision.gpus < gpus and not looked_at):
                break
            gpus = decision.gpus
        return gpus

    def set_size(self, state: _JobState, gpus: int, now_s: float, *, restart_s: float) -> None:
        """Change the job's GPU count now; it trains again after the restart."""
        state.left = state.left_at(now_s)
        self.charge(state, now_s)
        self.free += state.gpus - gpus
        self.changes.append((now_s, gpus - state.gpus))
        state.gpus, state.since_s = gpus, now_s + restart_s
        state.rate = 1.0 / relative_s(state.job.exponent, state.job.gpus, gpus)
        state.version += 1
        self.lost_hours += gpus * restart_s / HOUR_S
        end_s = state.since_s + state.left / state.rate
        heapq.heappush(self.events, (end_s, _ENDS, state.index, state.version))
        state.look_s = self.rules.look_s
        if self.policy.pressure is not None:
            self.schedule_decision(state, state.since_s + self.first_look_s, end_s)

    def schedule_decision(self, state: _JobState, when_s: float, end_s: float) -> None:
        """Schedule the next decision, unless the job ends before."""
        if when_s < end_s:
            heapq.heappush(self.events, (when_s, _LOOKS, state.index, state.version))

    def charge(self, state: _JobState, now_s: float) -> None:
        self.hours[state.index] += state.gpus * (now_s - state.held_since_s) / HOUR_S
        state.held_since_s = now_s

    def end(self, state: _JobState, now_s: float) -> None:
        self.charge(state, now_s)
        self.free += state.gpus
        self.changes.append((now_s, -state.gpus))
        self.finished[state.index] = now_s
        state.version += 1

    def decide_resize(self, state: _JobState, now_s: float) -> None:
        """Act as an executor: read, decide, carry out."""
        decision = self.judge(state, gpus=state.gpus, rate=state.measured, now_s=now_s)
        self.decisions[decision.action] = self.decisions.get(decision.action, 0) + 1
        trained_s = now_s - state.since_s
        if decision.act and decision.action is not Action.FLAG:
            self.resizes += 1
            visit = Visit(gpus=state.gpus, tokens_per_s=state.measured, steps=int(trained_s / _STEP_S))
            visited = (*state.history.visited, visit)
            state.history = replace(state.history, last_resize_s=now_s, visited=visited)
            freed = decision.gpus < state.gpus
            self.set_size(state, decision.gpus, now_s, restart_s=self.rules.limits.restart_s)
            if freed:
                self.admit(now_s)
            return
        wait_s = self.whole_window_s - trained_s
        if wait_s < _SAMPLE_S:
            wait_s, state.look_s = state.look_s, min(state.look_s * 1.5, self.rules.look_most_s)
        self.schedule_decision(state, now_s + wait_s, state.since_s + state.left / state.rate)

    def judge(
        self,
        state: _JobState,
        *,
        gpus: int,
        rate: float,
        now_s: float,
        rate_sigma: float = 0.02,
        confidence: float | None = None,
        opening: bool = False,
    ) -> Decision:
        """The policy's decision about a job on `gpus` at `rate`; an opening has no restart and no history."""
        job, rules = state.job, self.rules
        trained_s = self.whole_window_s if opening else now_s - state.since_s
        running = Running(
            gpus=gpus,
            scaling=TraceScaling(
                exponent=rules.believed_exponent,
                exponent_sigma=rules.exponent_sigma,
                counts=state.sizes,
                rate_sigma=rate_sigma,
            ),
            tokens_left=state.left_at(now_s),
            deadline_left_s=None if job.deadline_s is None else job.deadline_s - now_s,
            confidence=confidence or rules.confidence,
            trained_s=trained_s,
        )
        limits = replace(self.limits, max_gpus=state.sizes[-1], free_gpus=self.free)
        history = state.history
        if opening:
            free = max(0, self.free - gpus)
            limits = replace(limits, restart_s=0.0, pressure=Pressure.ALWAYS, free_gpus=free)
            history = History(first_gpus=job.gpus)
        reading = self._reading(min(trained_s, self.whole_window_s), gpus=gpus, rate=rate)
        return decide(reading, running, limits, history, now_s=now_s)

    def _reading(self, window_s: float, *, gpus: int, rate: float) -> Reading:
        """A complete reading of a job that trained at `rate` for the whole window."""
        return Reading(
            window_s=window_s,
            age_s=0.0,
            coverage=1.0,
            samples=int(window_s / _SAMPLE_S),
            gpus=gpus,
            tokens_per_s=rate,
            window_steps=int(window_s / _STEP_S),
            phase=Phase.TRAINING,
            others_waiting=bool(self.queue),
        )


def replay(
    jobs: Sequence[TraceJob], *, gpus: int, policy: Policy, rules: ReplayRules | None = None
) -> ReplayOutcome:
    """The trace under a policy."""
    run = _Replay(jobs, gpus, policy, rules or ReplayRules())
    run.run()
    return ReplayOutcome(
        started_s=tuple(run.started),
        finished_s=tuple(run.finished),
        gpu_hours=tuple(run.hours),
        missed=missed(jobs, run.finished),
        resizes=run.resizes,
        lost_gpu_hours=run.lost_hours,
        decisions=run.decisions,
        timeline=timeline(run.changes),
    )
