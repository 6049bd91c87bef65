"""A job's position over time, from its reports. Shared by all executors. Pure.

A job reports through records (progress.jsonl: local, Slurm) or scraped metrics (operator). Both become
`Mark`s, and every input of the resize policy follows from the marks. The present run is the marks since the
last restart, change of world size, or time that the clock was set. Start times count from a launch, or from
the last mark before a restart in place, to the first step.
"""

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rightsizer_engine.domain.reading import Phase
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import Record

_MOST_MARKS = 1000
"""Of a job that restarts forever."""
_CLOCK_SET_S = 60.0  # NTP slews smaller differences
_PHASES = {"start": Phase.STARTUP, "step": Phase.TRAINING, "checkpoint": Phase.TRAINING}
_BEFORE_FIRST_STEP = (Phase.STARTUP, Phase.RECOVERY)


@immutable
class Mark:
    """A job's position at one moment.

    `time_s` and `saved_at_s` (the end of the last checkpoint) are on one clock. `run` identifies the run of
    the workers within the job; it changes with each restart. `covers_s` is the time before this mark that it
    accounts for. `saving_s` and `data_wait_s` count up; None: not measured. `ahead_s`: less a steady clock's.
    """

    time_s: float
    step: int
    tokens: float
    world: int | None
    run: tuple[int, ...] = ()
    phase: Phase = Phase.TRAINING
    covers_s: float = 0.0
    saving_s: float | None = None
    data_wait_s: float | None = None
    saved_at_s: float | None = None
    ahead_s: float = 0.0


def marks_of(records: Iterable[Record], *, after: Mark | None = None) -> list[Mark]:
    """The marks of these records, which follow `after`."""
    marks: list[Mark] = []
    for record in records:
        after = _next_mark(after, record)
        marks.append(after)
    return marks


def _next_mark(before: Mark | None, record: Record) -> Mark:
    elapsed_s = max(0.0, record.time - before.time_s) if before else 0.0
    saving_s, waiting_s = (before.saving_s or 0.0, before.data_wait_s) if before else (0.0, None)
    saved = record.event == "checkpoint"
    if record.data_wait_s is not None:
        waiting_s = (waiting_s or 0.0) + record.data_wait_s
    complete = before is not None and record.step <= before.step + 1
    return Mark(
        time_s=record.time,
        step=record.step,
        tokens=record.tokens,
        world=record.world,
        run=(record.attempt, record.restart),
        phase=_PHASES.get(record.event, Phase.UNKNOWN),
        covers_s=elapsed_s if complete else record.step_s,
        saving_s=saving_s + (elapsed_s if saved else 0.0),
        data_wait_s=waiting_s,
        saved_at_s=record.time if saved else before.saved_at_s if before else None,
        ahead_s=record.time - record.uptime_s if record.uptime_s else 0.0,
    )


def _restarted(a: Mark, b: Mark) -> bool:
    """Whether the workers started again between two marks, their number changed, or the clock was set."""
    starts = b.phase in _BEFORE_FIRST_STEP and a.phase not in _BEFORE_FIRST_STEP
    counts_anew = b.tokens < a.tokens or (b.saving_s or 0.0) < (a.saving_s or 0.0)
    return starts or counts_anew or (a.world, a.run) != (b.world, b.run) or _clock_set(a, b)


def _clock_set(a: Mark, b: Mark) -> bool:
    """Whether the clock was set while a run went on, so that its times before and after do not compare."""
    return (a.world, a.run) == (b.world, b.run) and abs(b.ahead_s - a.ahead_s) > _CLOCK_SET_S


def present_run(marks: Sequence[Mark]) -> Sequence[Mark]:
    """The marks since the last restart or change of world size."""
    first = len(marks) - 1
    while first > 0 and not _restarted(marks[first - 1], marks[first]):
        first -= 1
    return marks[max(0, first) :]


def earlier_runs(marks: Sequence[Mark]) -> Iterator[Sequence[Mark]]:
    """The training marks of each run before the present one."""
    began = 0
    for i in range(1, len(marks)):
        if _restarted(marks[i - 1], marks[i]):
            if training := training_part(marks[began:i]):
                yield training
            began = i


def training_part(run: Sequence[Mark]) -> Sequence[Mark]:
    """A run's marks from its first step on."""
    first = next((i for i, mark in enumerate(run) if mark.phase not in _BEFORE_FIRST_STEP), len(run))
    return run[first:]


def pruned(marks: Sequence[Mark], *, keep_s: float, resolution: int = 60) -> tuple[Mark, ...]:
    """The marks of the last `keep_s`, fewer the older, and each run's first step and last mark.

    Start times need the latter. Marks are apart by their age over `resolution`: those between become one with
    the next. Every figure of a mark counts up, so this changes no rate.
    """
    kept: list[Mark] = []
    newest_s, fixed = (marks[-1].time_s if marks else 0.0), True
    parted = [True, *itertools.starmap(_restarted, itertools.pairwise(marks)), False]
    for i, mark in enumerate(marks):
        begins = parted[i] or marks[i - 1].phase in _BEFORE_FIRST_STEP
        boundary = parted[i + 1] or (begins and mark.phase not in _BEFORE_FIRST_STEP)
        if mark.time_s < newest_s - keep_s and not boundary:
            continue
        apart_s = (newest_s - mark.time_s) / resolution
        joins = not fixed and len(kept) > 1 and mark.time_s - kept[-2].time_s <= apart_s
        kept.append(_joined(kept.pop(), mark) if joins else mark)
        fixed = boundary
    return tuple(kept[-_MOST_MARKS:])


def _joined(a: Mark, b: Mark) -> Mark:
    """Two consecutive marks of one run as one."""
    covers_s = a.covers_s + min(b.covers_s, b.time_s - a.time_s)
    return replace(b, covers_s=covers_s)


def trained_s(marks: Sequence[Mark], *, now_s: float) -> float | None:
    """Seconds since the present run's first step; None before it."""
    training = training_part(present_run(marks))
    return max(0.0, now_s - training[0].time_s) if training else None


def start_durations_s(marks: Sequence[Mark], launches_s: Iterable[float] = ()) -> tuple[float, ...]:
    """Seconds of each start, from its launch to its first step.

    A start without a launch counts from the last mark of the previous run. `launches_s` must hold only
    launches whose first step is among the marks.
    """
    launches, durations = sorted(launches_s), []
    run_ended_s, training = -math.inf, False
    for before, mark in zip((None, *marks), marks, strict=False):
        if before is not None and _restarted(before, mark) and not _clock_set(before, mark):
            run_ended_s, training = (before.time_s, False) if training else (run_ended_s, False)
        if not training and mark.phase not in _BEFORE_FIRST_STEP:
            training = True
            at = bisect.bisect_right(launches, mark.time_s)
            began_s = max(run_ended_s, launches[at - 1] if at else -math.inf)
            if began_s > -math.inf:
                durations.append(max(0.0, mark.time_s - began_s))
    return tuple(durations)
