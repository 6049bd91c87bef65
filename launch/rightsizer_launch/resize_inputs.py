"""The inputs of the resize policy, worked out from what a job reports. Shared by all executors. Pure.

A job reports through records (progress.jsonl: local, Slurm) or scraped metrics (operator). Both become
`Mark`s, and every input follows from the marks:

- Present run: the marks since the last restart, change of world size, or time that the clock was set.
- Warm part: from `warm_up_s` after the run's first step, without its first two steps. Compilation, allocator
  growth and cold caches would understate the rate. A run that is still warming up is read in full; the policy
  does not act on it.
- Rate: tokens over the wall time of the window, minus the time in checkpoint saves. A median of step times
  hides stalls that the deadline includes; saves are left out because the policy's goodput includes them.
- Coverage: the share of the window's wall time that the marks account for. A scrape accounts for one scrape
  interval. A record accounts for the time since the previous record, unless steps between them are missing.
- Restart price: the median measured time from a launch (or from the last mark before a restart in place) to
  the first step, else the site's prior. The prior is `PRIOR_RESTART_S`.
"""

import bisect
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace

from rightsizer.domain.layout import Layout
from rightsizer.domain.reading import Phase, Reading
from rightsizer.resize.types import Limits, Mode, Pressure, Running, Scaling
from rightsizer.values import immutable
from rightsizer_api.plan import TrainingPlan
from rightsizer_launch.worker.progress import Record

__all__ = [
    "PRIOR_RESTART_S",
    "Mark",
    "Tuning",
    "earlier_runs",
    "gpu_bounds",
    "limits_of",
    "marks_of",
    "present_run",
    "pruned",
    "reading_of",
    "restart_s",
    "running_of",
    "seconds_left",
    "start_durations_s",
    "tokens_left",
    "trained_s",
    "with_gpu_counters",
]

PRIOR_RESTART_S = 600.0
"""Restart time before one was measured: the engine's default. A guess: images, NCCL and large checkpoints
take minutes, and a low prior would resize jobs too eagerly."""

_LEAST_RESTART_S = 5.0
"""Resolution of the measurement; a restart is never free."""

_MOST_MARKS = 1000
"""Of a job that restarts forever."""

_CLOCK_SET_S = 60.0  # NTP slews smaller differences

_COLD_STEPS = 1
"""Steps between the first mark of a run (the end of its first step) and its first warm mark."""

_PHASES = {"start": Phase.STARTUP, "step": Phase.TRAINING, "checkpoint": Phase.TRAINING}
_BEFORE_FIRST_STEP = (Phase.STARTUP, Phase.RECOVERY)

_GPU_COUNTERS = (
    "gpu_busy_mean",
    "gpu_busy_max",
    "tensor_active",
    "memory_active",
    "power_fraction",
    "memory_used_fraction",
)


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


@immutable
class Tuning:
    """What a site sets: the most it allows, pauses, windows, and the restart price before a measurement."""

    cap: Mode = Mode.RECOMMEND
    cool_down_s: float = 3600.0
    restart_s: float = PRIOR_RESTART_S
    warm_up_s: float = 300.0
    least_window_s: float = 600.0
    pressure: Pressure = Pressure.ON_PRESSURE


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
            if training := _training(marks[began:i]):
                yield training
            began = i


def _training(run: Sequence[Mark]) -> Sequence[Mark]:
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
    training = _training(present_run(marks))
    return max(0.0, now_s - training[0].time_s) if training else None


def reading_of(
    marks: Sequence[Mark], *, now_s: float, window_s: float, warm_up_s: float, source: str = "progress.jsonl"
) -> Reading:
    """The newest window of at least `window_s`, or all of the warm part if shorter; unknown without marks."""
    if not marks:
        return Reading()
    last, training = marks[-1], _training(present_run(marks))
    reading = Reading(
        age_s=max(0.0, now_s - last.time_s),
        gpus=last.world,
        tokens_done=last.tokens,
        steps=last.step,
        phase=last.phase,
        checkpoint_age_s=None if last.saved_at_s is None else max(0.0, now_s - last.saved_at_s),
    )
    window = _window(_warm(training, now_s=now_s, warm_up_s=warm_up_s), window_s)
    span_s = window[-1].time_s - window[0].time_s if window else 0.0
    if span_s <= 0:
        return reading
    first, tokens = window[0], last.tokens - window[0].tokens
    saving_s, waiting_s = _grown(first.saving_s, last.saving_s), _grown(first.data_wait_s, last.data_wait_s)
    training_s = span_s - (saving_s or 0.0)
    return replace(
        reading,
        window_s=span_s,
        coverage=_coverage(window, span_s),
        samples=len(window),
        tokens_per_s=tokens / training_s if training_s > 0 else None,
        window_steps=last.step - first.step,
        data_wait_fraction=_share(waiting_s, span_s),
        checkpoint_fraction=_share(saving_s, span_s),
        queries=(f"{source}: {tokens:,.0f} tokens in {span_s:.0f} s, {saving_s or 0.0:.0f} s of it saving",),
    )


def _warm(training: Sequence[Mark], *, now_s: float, warm_up_s: float) -> Sequence[Mark]:
    """The warm part of a run; all of it while it is warming up.

    A run that stands still since its first step is warm by time: it would never be seen to be idle.
    """
    if not training or now_s - training[0].time_s < warm_up_s:
        return training
    from_s, from_step = training[0].time_s + warm_up_s, training[0].step + _COLD_STEPS
    first = bisect.bisect_left(training, from_s, key=lambda mark: mark.time_s)
    if training[-1].step == training[0].step:
        return training[first:]
    while first < len(training) and training[first].step < from_step:
        first += 1
    return training[first:]


def _window(marks: Sequence[Mark], window_s: float) -> Sequence[Mark]:
    """The shortest newest part that spans the window; all marks if they span less."""
    if not marks:
        return marks
    first = bisect.bisect_right(marks, marks[-1].time_s - window_s, key=lambda mark: mark.time_s) - 1
    return marks[max(0, first) :]


def _coverage(window: Sequence[Mark], span_s: float) -> float:
    pairs = itertools.pairwise(window)
    return min(1.0, sum(min(b.covers_s, max(0.0, b.time_s - a.time_s)) for a, b in pairs) / span_s)


def _grown(before: float | None, after: float | None) -> float | None:
    """How much a counter grew; a counter that first appears within the window began at zero."""
    return None if after is None else max(0.0, after - (before or 0.0))


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None else min(1.0, part_s / whole_s)


def with_gpu_counters(own: Reading, counters: Reading | None) -> Reading:
    """The job's own reading, its unknown GPU metrics filled from the counters."""
    if counters is None:
        return own
    known = {f.name for f in fields(Reading) if getattr(own, f.name) is not None}
    filled = {name: getattr(counters, name) for name in _GPU_COUNTERS if name not in known}
    joined: Reading = replace(own, **filled, queries=(*own.queries, *counters.queries))
    return joined


def start_durations_s(marks: Sequence[Mark], launches_s: Iterable[float] = ()) -> tuple[float, ...]:
    """How long each start took, from its launch to its first step.

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


def restart_s(durations_s: Sequence[float], *, prior_s: float = PRIOR_RESTART_S) -> float:
    """The restart price: the median measured start, else the prior."""
    return max(_LEAST_RESTART_S, statistics.median(durations_s)) if durations_s else prior_s


def tokens_left(target: float, done: float | None) -> float | None:
    """Tokens to the end of the run; None if the position is unknown or a number is not finite."""
    left = math.nan if done is None else target - done
    return max(0.0, left) if math.isfinite(left) else None


def seconds_left(deadline_s: float | None, *, now_s: float) -> float | None:
    """Seconds to the deadline, negative if it has passed; None without a finite deadline."""
    left_s = math.nan if deadline_s is None else deadline_s - now_s
    return left_s if math.isfinite(left_s) else None


def gpu_bounds(plan: TrainingPlan) -> tuple[int, int | None]:
    """The fewest and the most GPUs that the plan allows; a stated number is both."""
    elasticity, resources = plan.spec.elasticity, plan.spec.resources
    if resources.gpus is not None:
        return resources.gpus, resources.gpus
    return elasticity.min_gpus or resources.min_gpus, elasticity.max_gpus or resources.max_gpus


def limits_of(
    plan: TrainingPlan,
    tuning: Tuning,
    *,
    gpus: tuple[int, int | None],
    checkpoint_interval_s: float | None,
    restart_s: float,
    saves_first: bool,
    free_gpus: int | None = None,
    others_waiting: bool | None = None,
    look_s: float | None = None,
    takes_spare: bool = False,
) -> Limits:
    """The limits that the plan, the site and the executor set. `gpus` are the fewest and the most."""
    return Limits(
        mode=Mode(plan.spec.resize_mode.value),
        cap=tuning.cap,
        min_gpus=gpus[0],
        max_gpus=gpus[1],
        free_gpus=free_gpus,
        cool_down_s=tuning.cool_down_s,
        checkpoint_interval_s=checkpoint_interval_s,
        restart_s=restart_s,
        saves_first=saves_first,
        warm_up_s=tuning.warm_up_s,
        least_window_s=tuning.least_window_s,
        look_s=look_s,
        takes_spare=takes_spare,
        pressure=tuning.pressure,
        others_waiting=others_waiting,
    )


def running_of(
    plan: TrainingPlan,
    reading: Reading,
    *,
    gpus: int,
    layout: Layout,
    scaling: Scaling | None,
    target_tokens: float,
    deadline_left_s: float | None,
    trained_s: float | None,
) -> Running:
    """The job as it runs."""
    return Running(
        gpus=gpus,
        layout=layout,
        scaling=scaling,
        tokens_left=tokens_left(target_tokens, reading.tokens_done),
        deadline_left_s=deadline_left_s,
        confidence=plan.spec.deadline.confidence if plan.spec.deadline else Running(gpus=gpus).confidence,
        trained_s=trained_s,
    )
