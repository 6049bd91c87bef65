"""A trace of jobs replayed: static requests, the policy (`decide` and `allocate`), and an oracle. Pure.

How a job's rate depends on its GPUs is a model, since traces do not say it: on n GPUs a job that asked for
g takes (1 - s) g/n + s of its duration, s being the part that GPUs do not shorten (Amdahl's law, anchored at
the size that ran). What is drawn at random is drawn by the caller and is part of each job.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rightsizer.elasticity import Action, Decision, History, Limits, Mode, Pressure, Running, Size
from rightsizer.fleet import Claim, allocate
from rightsizer.reading import Phase, Reading
from rightsizer.resize import decide, window_s

__all__ = ["Outcome", "Rules", "Timeline", "TraceJob", "oracle", "replay", "static"]

_HOUR_S = 3600.0
_STEP_S = 10.0
"""Seconds of an optimizer step, for counting steps in a window; a guess, hundreds fit any window."""

_SAMPLE_S = 30.0
"""Seconds between samples, dcgm-exporter's default."""

_MOST_CLAIMS = 48
"""So many waiting jobs, the first in the queue, are looked at when GPUs get free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """One job. Moments are seconds on the trace's clock; None: it has no deadline.

    `serial` (0..1) is the part of its duration on `gpus` GPUs that more GPUs do not shorten,
    `believed_serial` what the policy takes it for once it has run; `busy` the mean use of its GPUs.
    `rate_error_ln` is ln(predicted / true rate) before it runs, `measured_error_ln` that of a measured rate.
    """

    key: str
    submitted_s: float
    duration_s: float
    gpus: int
    deadline_s: float | None = None
    busy: float = 0.5
    serial: float = 0.5
    believed_serial: float = 0.5
    rate_error_ln: float = 0.0
    measured_error_ln: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the policy is run: its limits, how often it looks.

    A job may start with `start_growth` and grow to `most_growth` times what it asked for, by the next power
    of two below.
    `start_sigma` and `scaling_sigma` are what the policy takes the errors of its rates for, before a job
    runs and at sizes that it does not have.
    """

    limits: Limits = field(
        default_factory=lambda: Limits(
            mode=Mode.AUTO,
            pressure=Pressure.ALWAYS,
            cool_down_s=_HOUR_S,
            checkpoint_interval_s=1800.0,
            restart_s=300.0,
            saves_first=True,
        )
    )
    most_growth: float = 2.0
    start_growth: float = 1.0
    look_s: float = _HOUR_S
    look_most_s: float = 6 * _HOUR_S
    start_sigma: float = 0.15
    scaling_sigma: float = 0.1
    confidence: float = 0.9


@dataclass(frozen=True, slots=True)
class Timeline:
    """GPUs in use from each moment on."""

    moments_s: tuple[float, ...]
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of each job, in the trace's order, and what was done.

    `lost_gpu_hours` is the part of `gpu_hours` that restarts took; `decisions` counts the looks by action.
    """

    started_s: tuple[float, ...]
    finished_s: tuple[float, ...]
    gpu_hours: tuple[float, ...]
    missed: int
    resizes: int = 0
    lost_gpu_hours: float = 0.0
    decisions: dict[str, int] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=lambda: Timeline((), ()))


def counts(asked: int, most: int) -> tuple[int, ...]:
    """Sizes that a job could have: powers of two and what it asked for."""
    return tuple(sorted({asked} | {1 << k for k in range(most.bit_length()) if 1 << k <= most}))


def relative_s(serial: float, asked: int, gpus: int) -> float:
    """Time on `gpus` GPUs over the time on those asked for."""
    return (1.0 - serial) * asked / gpus + serial


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceScaling:
    """A job's sizes as the policy sees them; its unit of work is a second on the GPUs asked for."""

    asked: int
    serial: float
    counts: tuple[int, ...]
    sigma: float

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The curve through the measured rate."""
        here = relative_s(self.serial, self.asked, gpus) * tokens_per_s
        return tuple(
            Size(
                gpus=n,
                tokens_per_s=here / relative_s(self.serial, self.asked, n),
                sigma=0.02 if n == gpus and steps else self.sigma,
            )
            for n in self.counts
        )


def static(jobs: Sequence[TraceJob], *, gpus: int) -> Outcome:
    """What was asked for, first come, first served, until it is done; nobody is overtaken."""
    started, running, free, now_s = [], list[tuple[float, int]](), gpus, -math.inf
    for job in jobs:
        now_s = max(now_s, job.submitted_s)
        while running and (running[0][0] <= now_s or free < job.gpus):
            end_s, back = heapq.heappop(running)
            now_s, free = max(now_s, end_s), free + back
        started.append(now_s)
        heapq.heappush(running, (now_s + job.duration_s, job.gpus))
        free -= job.gpus
    finished = [start + job.duration_s for start, job in zip(started, jobs, strict=True)]
    changes = [(s, j.gpus) for s, j in zip(started, jobs, strict=True)]
    changes += [(f, -j.gpus) for f, j in zip(finished, jobs, strict=True)]
    return Outcome(
        started_s=tuple(started),
        finished_s=tuple(finished),
        gpu_hours=tuple(j.gpus * j.duration_s / _HOUR_S for j in jobs),
        missed=_missed(jobs, finished),
        timeline=_timeline(changes),
    )


def oracle(jobs: Sequence[TraceJob], *, gpus: int, rules: Rules | None = None) -> Outcome:
    """The fewest GPU-hours that each job could take by its true curve, with no queue and no restart cost.

    It changes between two sizes at the best moment (time is linear in the work done at each, so the cheapest
    mix lies on the lower hull). A job that no size brings in time takes the fewest GPU-hours at which it is
    hardly slower than as asked for (5 %). No real scheduler can beat this bound at as many deadlines met.
    """
    found = [_best(job, min(gpus, _most(job, rules or Rules()))) for job in jobs]
    finished = [job.submitted_s + taken_s for job, (taken_s, _) in zip(jobs, found, strict=True)]
    return Outcome(
        started_s=tuple(job.submitted_s for job in jobs),
        finished_s=tuple(finished),
        gpu_hours=tuple(hours for _, hours in found),
        missed=_missed(jobs, finished),
    )


_HARDLY_SLOWER = 1.05


def _best(job: TraceJob, most: int) -> tuple[float, float]:
    """Seconds and GPU-hours of the cheapest way to be in time; as fast as asked for where none is."""
    points = [(job.duration_s * relative_s(job.serial, job.gpus, n), n) for n in counts(job.gpus, most)]
    limit_s = math.inf if job.deadline_s is None else job.deadline_s - job.submitted_s
    if min(seconds for seconds, _ in points) > limit_s:
        limit_s = job.duration_s * _HARDLY_SLOWER
    options = [(seconds * n / _HOUR_S, seconds) for seconds, n in points if seconds <= limit_s]
    for slow_s, few in points:
        for quick_s, many in points:
            if quick_s <= limit_s < slow_s < math.inf:
                part = (slow_s - limit_s) / (slow_s - quick_s)
                options.append(((part * quick_s * many + (1 - part) * slow_s * few) / _HOUR_S, limit_s))
    hours, seconds = min(options)
    return seconds, hours


def _missed(jobs: Sequence[TraceJob], finished_s: Sequence[float]) -> int:
    return sum(
        job.deadline_s is not None and end_s > job.deadline_s + 1e-6
        for job, end_s in zip(jobs, finished_s, strict=True)
    )


def _timeline(changes: Sequence[tuple[float, int]]) -> Timeline:
    moments: list[float] = []
    levels: list[int] = []
    level = 0
    for moment, change in sorted(changes):
        level += change
        if moments and moments[-1] == moment:
            levels[-1] = level
        else:
            moments.append(moment)
            levels.append(level)
    return Timeline(tuple(moments), tuple(levels))


def _most(job: TraceJob, rules: Rules) -> int:
    return max(job.gpus, int(job.gpus * rules.most_growth))


@dataclass(slots=True)
class _Live:
    """One job on its way: what is left was left at `since_s`, from when on it trains at `rate`."""

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
        """Work left at a moment."""
        return max(0.0, self.left - self.rate * max(0.0, now_s - self.since_s))


_ARRIVES, _ENDS, _LOOKS = 0, 1, 2


class _Replay:
    """The event loop under the policy."""

    def __init__(self, jobs: Sequence[TraceJob], gpus: int, rules: Rules) -> None:
        self.rules, self.gpus, self.free = rules, gpus, gpus
        self.live = [
            _Live(job, i, counts(job.gpus, min(gpus, _most(job, rules))), job.duration_s)
            for i, job in enumerate(jobs)
        ]
        self.queue: dict[str, _Live] = {}
        self.started, self.finished = [0.0] * len(jobs), [0.0] * len(jobs)
        self.hours = [0.0] * len(jobs)
        self.resizes, self.lost_hours = 0, 0.0
        self.decisions: dict[str, int] = {}
        self.changes: list[tuple[float, int]] = []
        self.first_look_s = max(rules.limits.warm_up_s, rules.limits.least_window_s, 1800.0)
        self.whole_window_s = window_s(rules.limits)
        self.events = [(live.job.submitted_s, _ARRIVES, live.index, 0) for live in self.live]
        heapq.heapify(self.events)

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self.events:
            now_s, kind, index, version = heapq.heappop(self.events)
            live = self.live[index]
            if kind == _ARRIVES:
                self.queue[live.job.key] = live
                self.admit(now_s)
            elif version == live.version and kind == _ENDS:
                self.end(live, now_s)
                self.admit(now_s)
            elif version == live.version:
                self.look(live, now_s)

    def admit(self, now_s: float) -> None:
        """Start those in the queue whom the fleet gives GPUs."""
        if not self.queue or self.free < 1:
            return
        claims = [self.claim(live, now_s) for live in islice(self.queue.values(), _MOST_CLAIMS)]
        found = allocate(claims, gpus=self.free)
        for key, share in found.shares.items():
            live = self.queue.pop(key)
            self.started[live.index] = now_s
            self.set_size(live, share.size.gpus, now_s, restart_s=0.0)

    def claim(self, live: _Live, now_s: float) -> Claim:
        """Before it has run nothing is known of its scaling: it is taken for even."""
        job, rules = live.job, self.rules
        rate = math.exp(job.rate_error_ln) / job.gpus
        return Claim(
            key=job.key,
            sizes=tuple(
                Size(gpus=n, tokens_per_s=rate * n, sigma=rules.start_sigma)
                for n in live.sizes
                if n <= max(job.gpus, rules.start_growth * job.gpus)
            ),
            tokens_left=job.duration_s,
            deadline_left_s=None if job.deadline_s is None else job.deadline_s - now_s,
            confidence=rules.confidence,
            waited_s=now_s - job.submitted_s,
        )

    def set_size(self, live: _Live, gpus: int, now_s: float, *, restart_s: float) -> None:
        """From now on it holds so many GPUs; it trains again after the restart."""
        live.left = live.left_at(now_s)
        self.charge(live, now_s)
        self.free += live.gpus - gpus
        self.changes.append((now_s, gpus - live.gpus))
        live.gpus, live.since_s = gpus, now_s + restart_s
        live.rate = 1.0 / relative_s(live.job.serial, live.job.gpus, gpus)
        live.version += 1
        self.lost_hours += gpus * restart_s / _HOUR_S
        end_s = live.since_s + live.left / live.rate
        heapq.heappush(self.events, (end_s, _ENDS, live.index, live.version))
        live.look_s = self.rules.look_s
        self.look_again(live, live.since_s + self.first_look_s, end_s)

    def look_again(self, live: _Live, when_s: float, end_s: float) -> None:
        """Decide about it again then, unless it is done by then."""
        if when_s < end_s:
            heapq.heappush(self.events, (when_s, _LOOKS, live.index, live.version))

    def charge(self, live: _Live, now_s: float) -> None:
        self.hours[live.index] += live.gpus * (now_s - live.held_since_s) / _HOUR_S
        live.held_since_s = now_s

    def end(self, live: _Live, now_s: float) -> None:
        self.charge(live, now_s)
        self.free += live.gpus
        self.changes.append((now_s, -live.gpus))
        self.finished[live.index] = now_s
        live.version += 1

    def look(self, live: _Live, now_s: float) -> None:
        """What an executor does: read, decide, carry out."""
        found = self.decided(live, now_s)
        self.decisions[found.action] = self.decisions.get(found.action, 0) + 1
        if found.act and found.action is not Action.FLAG:
            self.resizes += 1
            live.history = replace(live.history, last_resize_s=now_s, last_good_gpus=live.gpus)
            freed = found.gpus < live.gpus
            self.set_size(live, found.gpus, now_s, restart_s=self.rules.limits.restart_s)
            if freed:
                self.admit(now_s)
            return
        trained_s = now_s - live.since_s
        wait_s = self.whole_window_s - trained_s
        if wait_s <= 0:
            wait_s, live.look_s = live.look_s, min(live.look_s * 1.5, self.rules.look_most_s)
        self.look_again(live, now_s + wait_s, live.since_s + live.left / live.rate)

    def decided(self, live: _Live, now_s: float) -> Decision:
        """The policy's word on it."""
        job, rules, trained_s = live.job, self.rules, now_s - live.since_s
        window = min(trained_s, self.whole_window_s)
        reading = Reading(
            window_s=window,
            age_s=0.0,
            coverage=1.0,
            samples=int(window / _SAMPLE_S),
            gpus=live.gpus,
            tokens_per_s=live.rate * math.exp(job.measured_error_ln),
            window_steps=int(window / _STEP_S),
            gpu_busy_mean=job.busy,
            phase=Phase.TRAINING,
            others_waiting=bool(self.queue),
        )
        running = Running(
            gpus=live.gpus,
            scaling=TraceScaling(
                asked=job.gpus, serial=job.believed_serial, counts=live.sizes, sigma=rules.scaling_sigma
            ),
            tokens_left=live.left_at(now_s),
            deadline_left_s=None if job.deadline_s is None else job.deadline_s - now_s,
            confidence=rules.confidence,
            trained_s=trained_s,
        )
        limits = replace(rules.limits, max_gpus=live.sizes[-1], free_gpus=self.free)
        return decide(reading, running, limits, live.history, now_s=now_s)


def replay(jobs: Sequence[TraceJob], *, gpus: int, rules: Rules | None = None) -> Outcome:
    """The trace under the policy: `fleet.allocate` starts jobs, `resize.decide` resizes them."""
    run = _Replay(jobs, gpus, rules or Rules())
    run.run()
    return Outcome(
        started_s=tuple(run.started),
        finished_s=tuple(run.finished),
        gpu_hours=tuple(run.hours),
        missed=_missed(jobs, run.finished),
        resizes=run.resizes,
        lost_gpu_hours=run.lost_hours,
        decisions=run.decisions,
        timeline=_timeline(run.changes),
    )
