"""Two-stage sizing: the size to open with, and the reserve that the first measurement may need. Pure.

The policy: at the first look the job takes the fewest GPUs that meet the deadline at its measured rate; at
later looks it grows again if it fell behind. A simulation carries it out for many draws of the errors:

    seconds on n GPUs = finish(n) exp(measurable + between_sizes(n) + unmeasurable)

`measurable` is the error of the predicted step time, known after the first look up to the noise of the
measurement. `between_sizes` is the error of a rate relative to that at the opening size, known once the job
runs at that size. `unmeasurable` is due to failures and downtime. The draws are quasi-random (a Kronecker
sequence). Half of them have deviations WIDE times as large as the other half, since the deviations
themselves are uncertain.
"""

import math
from functools import cache

import numpy as np

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.uncertainty import WIDE, z_quantile
from rightsizer_engine.search.types import Growth, Staging
from rightsizer_engine.values import immutable

_LOOK_S = 1200.0
"""Training before the first look. Ten minutes of steps differ from the long run's by MEASURED_LN."""

MEASURED_LN = 0.03
"""Deviation of ln(rate over a window / rate of the run): BLOOM and MLPerf repeats scatter by 2 to 4 %."""

_LATER_LOOKS = (0.25, 0.5, 0.75, 0.9)
"""Later looks, as shares of the time to the deadline."""

_SHRINK_MARGIN = 0.1
"""Share of the remaining time that a smaller size must leave over: `shrink_margin` of data/resize.json."""

_LIKELY = 0.8
_SCALES_AGREE = 0.05
"""The deadline's probability under believed and under WIDE deviations differs by at most this, if any reserve
does that: the stated one, their mean, is then within 3 points of both."""

CAP_COSTS = 0.02
"""A cap on the reserve may cost this much of the requested confidence before the size is fixed: less than the
error of a stated probability."""

_DRAWS = 1024
_LOOKS = 1 + len(_LATER_LOOKS)


@immutable
class RateErrors:
    """Standard deviations of ln(true / predicted seconds), by what a measurement tells about the error."""

    measurable: float
    between_sizes: float
    unmeasurable: float


@immutable
class SizeCurve:
    """Candidate sizes, ascending in GPUs, with the median seconds of training of the best layout on each."""

    gpus: Array
    finish_s: Array


@immutable
class Constraints:
    """The job's goal and the price of a resize.

    `start_s` passes around training (start-up, last checkpoint). After a decision to grow, training goes on
    for `lead_s` until the GPUs are there. Every resize stops training for `restart_s`. The budget pays for
    `most_gpu_s`.
    """

    deadline_s: float
    confidence: float
    start_s: float
    restart_s: float
    lead_s: float
    most_gpu_s: float = np.inf

    @property
    def looks_s(self) -> tuple[float, ...]:
        """The first look, and the later ones that are at least as long after it."""
        first = self.start_s + _LOOK_S
        later = (share * self.deadline_s for share in _LATER_LOOKS)
        return (first, *(look for look in later if look >= 2 * first))


@immutable
class OpeningProblem:
    """Input of a policy's simulation: candidate sizes, errors of their predictions, the job's constraints.

    `capped`: the GPUs allowed leave out larger sizes.
    """

    sizes: SizeCurve
    errors: RateErrors
    constraints: Constraints
    capped: bool = False


@immutable
class Draws:
    """Possible truths in standard deviations, each of shape (n,) or (n, looks); `scale`: 1 or WIDE."""

    scale: Array
    measurable: Array
    unmeasurable: Array
    between_sizes: Array
    noise: Array


@immutable
class _Jobs:
    """Draws at a look: the index of each one's size, the share of work left, and the time."""

    at: Array
    left: Array
    now_s: Array


@immutable
class Outcome:
    """The result of each draw: its end, the most GPUs that it ever takes, and GPU-seconds."""

    end_s: Array
    most_gpus: Array
    gpu_s: Array


@cache
def _spread_draws(count: int = _DRAWS) -> Draws:
    """Evenly spread draws: a Kronecker sequence with the roots of x^(d+1) = x + 1."""
    dimensions = 2 + 2 * _LOOKS
    root = 1.5
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    uniform = (0.5 + np.arange(1, count // 2 + 1)[:, None] * steps) % 1.0
    z = np.asarray([z_quantile(u) for u in np.clip(uniform, 1e-9, 1 - 1e-9).ravel()])
    z = np.tile(z.reshape(uniform.shape), (2, 1))
    return Draws(
        scale=np.repeat([1.0, WIDE], count // 2),
        measurable=z[:, 0],
        unmeasurable=z[:, 1],
        between_sizes=z[:, 2 : 2 + _LOOKS],
        noise=z[:, 2 + _LOOKS :],
    )


def _simulate(problem: OpeningProblem, draws: Draws, *, opening: int, reserve: int) -> Outcome:
    """Carry the policy out. `opening` and `reserve` index the sizes."""
    errors, constraints = problem.errors, problem.constraints
    finish_s, gpus = problem.sizes.finish_s[: reserve + 1], problem.sizes.gpus[: reserve + 1]
    measurable, unmeasurable = (
        draws.scale * errors.measurable * draws.measurable,
        draws.scale * errors.unmeasurable * draws.unmeasurable,
    )
    n = draws.scale.size
    at, between_sizes, left = np.full(n, opening), np.zeros(n), np.ones(n)
    now_s, end_s = np.full(n, constraints.start_s), np.full(n, np.inf)
    most, gpu_s = at, np.full(n, gpus[opening] * constraints.start_s)
    looks = constraints.looks_s
    for look, look_s in enumerate((*looks, np.inf)):
        takes_s = finish_s[at] * np.exp(measurable + between_sizes + unmeasurable)
        trains_s = np.maximum(0.0, np.minimum(left * takes_s, look_s - now_s))
        end_s = np.where(left > 0, now_s + left * takes_s, end_s)
        left, gpu_s = left - trains_s / takes_s, gpu_s + gpus[at] * trains_s
        left = np.where(left < 1e-12, 0.0, left)
        now_s = now_s + trains_s
        if look == len(looks):
            break
        measured = measurable + between_sizes + MEASURED_LN * draws.noise[:, look]
        chosen = _choose(problem, _Jobs(at=at, left=left, now_s=now_s), measured, reserve, first=look == 0)
        changes = (chosen != at) & (left > 0)
        lead_s = np.where(changes & (chosen > at), np.minimum(constraints.lead_s, left * takes_s), 0.0)
        left = left - lead_s / takes_s
        now_s = now_s + lead_s + changes * constraints.restart_s
        gpu_s = gpu_s + gpus[at] * lead_s + changes * gpus[chosen] * constraints.restart_s
        between_sizes = np.where(
            changes, draws.scale * errors.between_sizes * draws.between_sizes[:, look], between_sizes
        )
        at = np.where(changes, chosen, at)
        most = np.maximum(most, at)
    return Outcome(end_s=end_s, most_gpus=gpus[most], gpu_s=gpu_s)


def _choose(problem: OpeningProblem, jobs: _Jobs, measured: Array, reserve: int, *, first: bool) -> Array:
    """The policy: the size that each job takes after a look that read ln pace `measured`.

    The fewest GPUs that meet the deadline at the confidence, else the fewest at even odds, else no change. A
    job shrinks only at the first look.
    """
    errors, constraints = problem.errors, problem.constraints
    index, at = np.arange(reserve + 1), jobs.at[:, None]
    full_s = problem.sizes.finish_s[: reserve + 1] * np.exp(measured)[:, None]
    lead_s = np.where(index > at, constraints.lead_s, 0.0)
    left = jobs.left[:, None] - lead_s / np.take_along_axis(full_s, at, axis=1)
    median_s = np.maximum(0.0, left) * full_s
    spare_s = constraints.deadline_s - jobs.now_s[:, None] - lead_s - constraints.restart_s * (index != at)
    deviation = np.hypot(MEASURED_LN, errors.between_sizes * (index != at))
    smaller = index < at
    spare_at_confidence_s = spare_s * np.where(smaller, 1.0 - _SHRINK_MARGIN, 1.0)
    good = median_s * np.exp(z_quantile(constraints.confidence) * deviation) <= spare_at_confidence_s
    good &= first | ~smaller
    even = (median_s <= spare_s) & ~smaller
    otherwise = np.where(even.any(axis=1), even.argmax(axis=1), jobs.at)
    return np.where(good.any(axis=1), good.argmax(axis=1), otherwise)


def deadline_probability(problem: OpeningProblem, opening: int) -> float:
    """The deadline's probability if the job opens with this size and may grow to the largest."""
    return _probability(problem, opening, problem.sizes.gpus.size - 1)[0]


def choose_opening(
    problem: OpeningProblem, *, first: int, least: float | None = None
) -> tuple[int, Staging] | None:
    """The index of the smallest opening size, from `first` on, with which the deadline holds with `least`.

    `least` None: the requested confidence.

    `first` is the fewest GPUs whose median finish is in time: with fewer, the first look would most likely
    need more. None: no opening size reaches that within the sizes and the budget.
    """
    sizes, least = problem.sizes, problem.constraints.confidence if least is None else least
    last = sizes.gpus.size - 1
    for opening in range(first, last + 1):
        if deadline_probability(problem, opening) >= least:
            break
    else:
        return None
    reserve = _smallest_reserve(problem, opening)
    probability, apart = _probability(problem, opening, reserve)
    short = probability < problem.constraints.confidence or apart > _SCALES_AGREE
    ever = np.sort(_simulate(problem, _spread_draws(), opening=opening, reserve=reserve).most_gpus)
    likely = int(ever[math.ceil(_LIKELY * ever.size) - 1])
    return opening, Staging(
        look_s=_LOOK_S,
        reserve_gpus=int(sizes.gpus[reserve]),
        likely_gpus=likely,
        likely_probability=float(np.mean(ever <= likely)),
        probability=probability,
        capped=problem.capped and short,
        static_gpus=None,
        policy=_policy(problem, opening, reserve),
    )


def _probability(problem: OpeningProblem, opening: int, reserve: int) -> tuple[float, float]:
    """The deadline's probability (0 beyond the budget), and how far the two scales of deviations differ."""
    draws = _spread_draws()
    found = _simulate(problem, draws, opening=opening, reserve=reserve)
    if float(np.mean(found.gpu_s)) > problem.constraints.most_gpu_s:
        return 0.0, 1.0
    in_time = found.end_s <= problem.constraints.deadline_s
    believed = draws.scale == 1.0
    return float(np.mean(in_time)), float(np.mean(in_time[believed]) - np.mean(in_time[~believed]))


def _smallest_reserve(problem: OpeningProblem, opening: int) -> int:
    """The smallest reserve with which the confidence holds, under both scales where any reserve does that."""
    low, high = opening, problem.sizes.gpus.size - 1
    agree = max(_SCALES_AGREE, _probability(problem, opening, high)[1] + 0.01)
    while low < high:
        middle = (low + high) // 2
        probability, apart = _probability(problem, opening, middle)
        if probability >= problem.constraints.confidence and apart <= agree:
            high = middle
        else:
            low = middle + 1
    return high


def _policy(problem: OpeningProblem, opening: int, reserve: int) -> tuple[Growth, ...]:
    """The size for each measured rate at the first look, ascending."""
    ln = np.linspace(-1.0, 1.0, 401)
    now_s = np.full(ln.shape, problem.constraints.start_s + _LOOK_S)
    left = np.maximum(0.0, 1.0 - _LOOK_S / (problem.sizes.finish_s[opening] * np.exp(ln)))
    jobs = _Jobs(at=np.full(ln.shape, opening), left=left, now_s=now_s)
    chosen = np.maximum.accumulate(_choose(problem, jobs, ln, reserve, first=True))
    change = np.flatnonzero(np.append(True, chosen[1:] != chosen[:-1]))
    ratios = [0.0, *(round(math.exp(ln[i]), 3) for i in change[1:])]
    gpus = problem.sizes.gpus[chosen[change]]
    return tuple(Growth(step_ratio=r, gpus=int(g)) for r, g in zip(ratios, gpus, strict=True))
