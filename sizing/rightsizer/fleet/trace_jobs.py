"""Jobs of a trace, the rules of a replay, and its outcome.

Traces do not record how a job's rate depends on its GPUs, so it is modelled: on n GPUs a job that requested g
takes (1 - s) g/n + s of its duration, where s is the serial part (Amdahl's law, anchored at the size that
ran). Random draws are made by the caller and are part of each job.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rightsizer.resize.types import Limits, Mode, Pressure, Size
from rightsizer.values import immutable

__all__ = [
    "ReplayOutcome",
    "ReplayRules",
    "Timeline",
    "TraceJob",
    "TraceScaling",
    "counts",
    "missed",
    "most_gpus",
    "relative_s",
    "timeline",
]

HOUR_S = 3600.0


@immutable
class TraceJob:
    """One job. Times are seconds on the trace's clock; None: no deadline.

    `serial` (0..1) is the part of its duration on `gpus` GPUs that more GPUs do not shorten;
    `believed_serial` is the policy's estimate of it once the job has run. `busy` is the mean GPU utilisation.
    `rate_error_ln` is ln(predicted / true rate) before the job runs, `measured_error_ln` that of a measured
    rate.
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


@immutable
class ReplayRules:
    """How the policy is run: its limits and how often it decides.

    A job may start with `start_growth` and grow to `most_growth` times the GPUs it requested. `start_sigma`
    and `scaling_sigma` are the assumed errors of rates before a job runs and at other sizes.
    """

    limits: Limits = field(
        default_factory=lambda: Limits(
            mode=Mode.AUTO,
            pressure=Pressure.ALWAYS,
            cool_down_s=HOUR_S,
            checkpoint_interval_s=1800.0,
            restart_s=300.0,
            saves_first=True,
        )
    )
    most_growth: float = 2.0
    start_growth: float = 1.0
    look_s: float = HOUR_S
    look_most_s: float = 6 * HOUR_S
    start_sigma: float = 0.15
    scaling_sigma: float = 0.1
    confidence: float = 0.9


@dataclass(frozen=True, slots=True)
class Timeline:
    """GPUs in use from each time on."""

    moments_s: tuple[float, ...]
    gpus: tuple[int, ...]


@immutable
class ReplayOutcome:
    """The outcome of each job in the trace's order, and totals.

    `lost_gpu_hours` is the part of `gpu_hours` spent in restarts; `decisions` counts decisions by action.
    """

    started_s: tuple[float, ...]
    finished_s: tuple[float, ...]
    gpu_hours: tuple[float, ...]
    missed: int
    resizes: int = 0
    lost_gpu_hours: float = 0.0
    decisions: dict[str, int] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=lambda: Timeline((), ()))


def counts(requested: int, most: int) -> tuple[int, ...]:
    """Possible sizes of a job: powers of two and the requested count."""
    return tuple(sorted({requested} | {1 << k for k in range(most.bit_length()) if 1 << k <= most}))


def relative_s(serial: float, requested: int, gpus: int) -> float:
    """Time on `gpus` GPUs over the time on the requested GPUs."""
    return (1.0 - serial) * requested / gpus + serial


@immutable
class TraceScaling:
    """A job's sizes as inputs of the policy. One unit of work is a second on the requested GPUs."""

    requested: int
    serial: float
    counts: tuple[int, ...]
    sigma: float

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[Size, ...]:
        """The curve through the measured rate."""
        work_per_s = relative_s(self.serial, self.requested, gpus) * tokens_per_s
        return tuple(
            Size(
                gpus=n,
                tokens_per_s=work_per_s / relative_s(self.serial, self.requested, n),
                sigma=0.02 if n == gpus and steps else self.sigma,
            )
            for n in self.counts
        )


def missed(jobs: Sequence[TraceJob], finished_s: Sequence[float]) -> int:
    """The number of jobs that end after their deadlines."""
    return sum(
        job.deadline_s is not None and end_s > job.deadline_s + 1e-6
        for job, end_s in zip(jobs, finished_s, strict=True)
    )


def timeline(changes: Sequence[tuple[float, int]]) -> Timeline:
    """The level after each change, from (moment, change) in any order."""
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


def most_gpus(job: TraceJob, rules: ReplayRules) -> int:
    """The largest size of a job."""
    return max(job.gpus, int(job.gpus * rules.most_growth))
