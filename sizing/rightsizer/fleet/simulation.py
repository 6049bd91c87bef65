"""Replay a job trace under the policy: `allocate` starts jobs, `decide` resizes them. Pure."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rightsizer.domain.reading import Phase, Reading
from rightsizer.fleet.allocate import GpuRequest, allocate
from rightsizer.fleet.baselines import oracle, static
from rightsizer.fleet.trace_jobs import (
    HOUR_S,
    ReplayOutcome,
    ReplayRules,
    Timeline,
    TraceJob,
    TraceScaling,
    counts,
    missed,
    most_gpus,
    relative_s,
    timeline,
)
from rightsizer.resize.policy import decide, window_s
from rightsizer.resize.types import Action, Decision, History, Running, Size

__all__ = ["ReplayOutcome", "ReplayRules", "Timeline", "TraceJob", "oracle", "replay", "static"]

_STEP_S = 10.0
"""Seconds of an optimizer step, to count steps in a window. A guess; any window has hundreds of steps."""

_SAMPLE_S = 30.0
"""Seconds between samples, dcgm-exporter's default."""

_MOST_CLAIMS = 48
"""The number of waiting jobs, from the head of the queue, considered when GPUs become free."""


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


_ARRIVES, _ENDS, _LOOKS = 0, 1, 2


class _Replay:
    """The event loop under the policy."""

    def __init__(self, jobs: Sequence[TraceJob], gpus: int, rules: ReplayRules) -> None:
        self.rules, self.gpus, self.free = rules, gpus, gpus
        self.state = [
            _JobState(job, i, counts(job.gpus, min(gpus, most_gpus(job, rules))), job.duration_s)
            for i, job in enumerate(jobs)
        ]
        self.queue: dict[str, _JobState] = {}
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
                self.queue[state.job.key] = state
                self.admit(now_s)
            elif version == state.version and kind == _ENDS:
                self.end(state, now_s)
                self.admit(now_s)
            elif version == state.version:
                self.decide_resize(state, now_s)

    def admit(self, now_s: float) -> None:
        """Start the queued jobs that get GPUs."""
        if not self.queue or self.free < 1:
            return
        requests = [self.request(state, now_s) for state in islice(self.queue.values(), _MOST_CLAIMS)]
        allocation = allocate(requests, gpus=self.free)
        for key, grant in allocation.grants.items():
            state = self.queue.pop(key)
            self.started[state.index] = now_s
            self.set_size(state, grant.size.gpus, now_s, restart_s=0.0)

    def request(self, state: _JobState, now_s: float) -> GpuRequest:
        """The request of a waiting job. Its scaling is unknown before it runs and assumed linear."""
        job, rules = state.job, self.rules
        rate = math.exp(job.rate_error_ln) / job.gpus
        return GpuRequest(
            key=job.key,
            sizes=tuple(
                Size(gpus=n, tokens_per_s=rate * n, sigma=rules.start_sigma)
                for n in state.sizes
                if n <= max(job.gpus, rules.start_growth * job.gpus)
            ),
            tokens_left=job.duration_s,
            deadline_left_s=None if job.deadline_s is None else job.deadline_s - now_s,
            confidence=rules.confidence,
            waited_s=now_s - job.submitted_s,
        )

    def set_size(self, state: _JobState, gpus: int, now_s: float, *, restart_s: float) -> None:
        """Change the job's GPU count now; it trains again after the restart."""
        state.left = state.left_at(now_s)
        self.charge(state, now_s)
        self.free += state.gpus - gpus
        self.changes.append((now_s, gpus - state.gpus))
        state.gpus, state.since_s = gpus, now_s + restart_s
        state.rate = 1.0 / relative_s(state.job.serial, state.job.gpus, gpus)
        state.version += 1
        self.lost_hours += gpus * restart_s / HOUR_S
        end_s = state.since_s + state.left / state.rate
        heapq.heappush(self.events, (end_s, _ENDS, state.index, state.version))
        state.look_s = self.rules.look_s
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
        decision = self.decision(state, now_s)
        self.decisions[decision.action] = self.decisions.get(decision.action, 0) + 1
        if decision.act and decision.action is not Action.FLAG:
            self.resizes += 1
            state.history = replace(state.history, last_resize_s=now_s)
            freed = decision.gpus < state.gpus
            self.set_size(state, decision.gpus, now_s, restart_s=self.rules.limits.restart_s)
            if freed:
                self.admit(now_s)
            return
        trained_s = now_s - state.since_s
        wait_s = self.whole_window_s - trained_s
        if wait_s < _SAMPLE_S:
            wait_s, state.look_s = state.look_s, min(state.look_s * 1.5, self.rules.look_most_s)
        self.schedule_decision(state, now_s + wait_s, state.since_s + state.left / state.rate)

    def decision(self, state: _JobState, now_s: float) -> Decision:
        """The policy's decision about the job."""
        job, rules, trained_s = state.job, self.rules, now_s - state.since_s
        window = min(trained_s, self.whole_window_s)
        reading = Reading(
            window_s=window,
            age_s=0.0,
            coverage=1.0,
            samples=int(window / _SAMPLE_S),
            gpus=state.gpus,
            tokens_per_s=state.rate * math.exp(job.measured_error_ln),
            window_steps=int(window / _STEP_S),
            gpu_busy_mean=job.busy,
            phase=Phase.TRAINING,
            others_waiting=bool(self.queue),
        )
        running = Running(
            gpus=state.gpus,
            scaling=TraceScaling(
                requested=job.gpus, serial=job.believed_serial, counts=state.sizes, sigma=rules.scaling_sigma
            ),
            tokens_left=state.left_at(now_s),
            deadline_left_s=None if job.deadline_s is None else job.deadline_s - now_s,
            confidence=rules.confidence,
            trained_s=trained_s,
        )
        limits = replace(rules.limits, max_gpus=state.sizes[-1], free_gpus=self.free)
        return decide(reading, running, limits, state.history, now_s=now_s)


def replay(jobs: Sequence[TraceJob], *, gpus: int, rules: ReplayRules | None = None) -> ReplayOutcome:
    """The trace under the policy: `fleet.allocate` starts jobs, `resize.decide` resizes them."""
    run = _Replay(jobs, gpus, rules or ReplayRules())
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
