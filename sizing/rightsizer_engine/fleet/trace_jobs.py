"""Jobs of a trace, the policies and rules of a replay, and its outcome.

Traces do not record how a job's rate depends on its GPUs, so it is modelled: a job that requested g GPUs runs
on n GPUs at (n / g)^e times its rate on g. The exponents e of published runs are measured; 1 is even scaling.
Random draws are made by the caller and are part of each job.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rightsizer_engine.resize.types import JobSize, Limits, Mode, Pressure
from rightsizer_engine.values import immutable

HOUR_S = 3600.0


class StartSize(enum.StrEnum):
    """The size that a job starts with: as requested, half of it, one GPU, or as the resize policy decides."""

    REQUEST = "request"
    HALF = "half"
    ONE = "one"
    STAGED = "staged"


@immutable
class Policy:
    """A sizing policy: the jobs' opening, and when the resize policy may shrink them; None: never resized."""

    opening: StartSize
    pressure: Pressure | None = None


POLICIES = {
    "static": Policy(opening=StartSize.REQUEST),
    "one GPU each": Policy(opening=StartSize.ONE),
    "half of each": Policy(opening=StartSize.HALF),
    "resize, OnPressure": Policy(opening=StartSize.REQUEST, pressure=Pressure.ON_PRESSURE),
    "resize, Always": Policy(opening=StartSize.REQUEST, pressure=Pressure.ALWAYS),
    "staged, OnPressure": Policy(opening=StartSize.STAGED, pressure=Pressure.ON_PRESSURE),
    "staged, Always": Policy(opening=StartSize.STAGED, pressure=Pressure.ALWAYS),
}
"""The policies that are compared. OnPressure is the shipped default of Kubernetes and Slurm."""


@immutable
class TraceJob:
    """One job. Times are seconds on the trace's clock; None: no deadline.

    `exponent` is that of its scaling. `rate_error_ln` is ln(predicted / true rate) before the job runs,
    `measured_error_ln` that of a measured rate.
    """

    key: str
    submitted_s: float
    duration_s: float
    gpus: int
    deadline_s: float | None = None
    exponent: float = 1.0
    rate_error_ln: float = 0.0
    measured_error_ln: float = 0.0


@immutable
class ReplayRules:
    """The rules of a policy's replay: its limits and its interval.

    A job may grow to `most_growth` times the GPUs it requested. The policy does not know a job's scaling: it
    believes the exponent `believed_exponent` with the deviation `exponent_sigma`, until the job has been
    measured at two sizes. `start_sigma` is the deviation of ln(predicted / true rate) before a job runs.
    A job opens at even odds if its deadline is more than `opening_looks` first looks away, a guess.
    """

    limits: Limits = field(
        default_factory=lambda: Limits(
            mode=Mode.AUTO,
            cool_down_s=HOUR_S,
            checkpoint_interval_s=1800.0,
            restart_s=300.0,
            saves_first=True,
        )
    )
    most_growth: float = 2.0
    look_s: float = HOUR_S
    look_most_s: float = 6 * HOUR_S
    start_sigma: float = 0.15
    believed_exponent: float = 0.9
    exponent_sigma: float = 0.15
    confidence: float = 0.9
    opening_looks: float = 8.0


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


def half(requested: int) -> int:
    """Half of the requested count, but one GPU at least."""
    return max(1, requested // 2)


def counts(requested: int, most: int) -> tuple[int, ...]:
    """Sizes that a resize may choose: powers of two and the requested count."""
    return tuple(sorted({requested} | {1 << k for k in range(most.bit_length()) if 1 << k <= most}))


def relative_s(exponent: float, requested: int, gpus: int) -> float:
    """Time on `gpus` GPUs over the time on the requested GPUs."""
    return float((requested / gpus) ** exponent)


@immutable
class TraceScaling:
    """A job's sizes as inputs of the policy. One unit of work is a second on the requested GPUs.

    `rate_sigma` is the deviation of the rate at the present size, `exponent_sigma` that of the exponent.
    """

    exponent: float
    exponent_sigma: float
    counts: tuple[int, ...]
    rate_sigma: float = 0.02

    def sizes(self, *, gpus: int, tokens_per_s: float, steps: int) -> tuple[JobSize, ...]:
        """The curve through the measured rate."""
        return tuple(
            JobSize(
                gpus=n,
                tokens_per_s=tokens_per_s / relative_s(self.exponent, gpus, n),
                sigma=math.hypot(self.rate_sigma, self.exponent_sigma * math.log(n / gpus)),
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
