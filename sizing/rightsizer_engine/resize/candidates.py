"""Choose a job's size at its measured rate: the time, cost and savings of each candidate."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.estimate.parameters import Parameters
from rightsizer_engine.resize.types import Action, History, JobSize, Limits, Pressure, Running
from rightsizer_engine.resize.visits import with_visits
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable

_HOUR_S = 3600.0
_NORMAL = NormalDist()


@immutable
class CandidateSizes:
    """The present size of a job, the `alternatives` it may take, and its remaining work.

    `lost_s` is work at the present size that a restart repeats. `z` is the normal quantile of the deadline's
    confidence. `others_wait`: other jobs are waiting for GPUs. `beyond` are sizes that the job may take, but
    not now, since too few GPUs are free. `first` is the size that the job had first; None: the present one.
    """

    present: JobSize
    alternatives: tuple[JobSize, ...]
    tokens_left: float
    deadline_left_s: float
    restart_s: float
    lost_s: float
    z: float
    others_wait: bool
    pressure: Pressure
    beyond: tuple[JobSize, ...] = ()
    first: JobSize | None = None

    def seconds(self, size: JobSize, *, z: float = 0.0) -> float:
        """Seconds to the end of the run with this size, restart and repeated work included, at quantile z."""
        rate = size.tokens_per_s * size.goodput * math.exp(-z * size.sigma)
        if size is self.present:
            return self.tokens_left / rate
        return self.restart_s + (self.tokens_left + self.lost_s * self.present.tokens_per_s) / rate

    def in_time(self, size: JobSize, *, z: float | None = None, margin: float = 0.0) -> bool:
        """Whether the deadline holds at quantile z (default: the confidence) with a relative margin."""
        quantile = self.z if z is None else z
        return self.seconds(size, z=quantile) <= self.deadline_left_s * (1.0 - margin)

    def confidence(self, size: JobSize) -> float | None:
        """The probability that the deadline holds with this size; None without a deadline."""
        if math.isinf(self.deadline_left_s):
            return None
        spare_s = self.deadline_left_s - (0.0 if size is self.present else self.restart_s)
        median_s = self.seconds(size) - (0.0 if size is self.present else self.restart_s)
        if spare_s <= 0 or median_s <= 0:
            return 1.0 if median_s <= 0 else 0.0
        return _NORMAL.cdf(math.log(spare_s / median_s) / max(size.sigma, 1e-6))

    def best_chance(self) -> float:
        """The highest probability that the deadline holds, with the present GPUs or more, now or later."""
        larger = (s for s in (*self.alternatives, *self.beyond) if s.gpus >= self.present.gpus)
        return max(self.confidence(size) or 0.0 for size in (self.present, *larger))

    def longest_s(self, slower: float) -> float:
        """Seconds to the end at the first size, and the share `slower` of them more."""
        first = self.first or self.present
        return self.tokens_left / (first.tokens_per_s * first.goodput) * (1.0 + slower)

    def price_gpu_hours(self, size: JobSize) -> float:
        """GPU-hours of the restart, which holds the new GPUs, and of the repeated work."""
        again_s = self.lost_s * self.present.tokens_per_s / size.tokens_per_s
        return size.gpus * (self.restart_s + again_s) / _HOUR_S

    def saves_gpu_hours(self, size: JobSize) -> float:
        """GPU-hours to the end at the present size minus those at this size, without the restart."""
        held = size.gpus * self.tokens_left / (size.tokens_per_s * size.goodput)
        return (self.present.gpus * self.seconds(self.present) - held) / _HOUR_S

    def freed_gpu_hours(self, size: JobSize) -> float:
        """GPU-hours that other jobs get until this job would have ended at its present size."""
        return (self.present.gpus - size.gpus) * self.seconds(self.present) / _HOUR_S

    def worth_shrinking(self, size: JobSize, p: Parameters) -> bool:
        """Whether releasing GPUs is worth the restart."""
        cost = self.price_gpu_hours(size) - self.saves_gpu_hours(size)
        if cost < 0:
            return True
        frees_enough = self.freed_gpu_hours(size) > p.worth_under_pressure * cost
        return frees_enough and (self.others_wait or self.pressure is Pressure.ON_PRESSURE)


@immutable
class SizeChoice:
    """The size to take and why. Without one: `never_in_time` (late at every size) or `oversized`."""

    action: Action = Action.KEEP
    size: JobSize | None = None
    why: str
    never_in_time: bool = False
    oversized: bool = False


def candidate_sizes(
    r: Reading, running: Running, limits: Limits, history: History, p: Parameters
) -> CandidateSizes:
    """The job's sizes within its limits, recalibrated to the measured rate.

    The reading has passed all preconditions: rate, steps, GPUs and remaining work are known.
    """
    assert running.scaling is not None  # unmanaged jobs are handled before
    rate = float(r.tokens_per_s or 0.0)
    modelled = running.scaling.sizes(gpus=running.gpus, tokens_per_s=rate, steps=int(r.window_steps or 0))
    every = with_visits(modelled, history.visited, present_gpus=running.gpus, p=p)
    present = next(
        (s for s in every if s.gpus == running.gpus and s.layout == running.layout),
        JobSize(gpus=running.gpus, tokens_per_s=rate, layout=running.layout),
    )
    most = max(limits.max_gpus or _UNLIMITED, running.gpus)
    allowed = [
        s
        for s in every
        if s is not present
        and limits.min_gpus <= s.gpus <= most
        and (s.gpus not in history.failed_gpus or s.gpus == running.gpus)
    ]
    reach = running.gpus + _value_or(limits.free_gpus, _UNLIMITED)
    waiting = r.others_waiting if limits.others_waiting is None else limits.others_waiting
    lost_s = _value_or(r.checkpoint_age_s, limits.checkpoint_interval_s or 0.0)
    return CandidateSizes(
        present=present,
        alternatives=_preferred([s for s in allowed if s.gpus <= reach], p),
        beyond=_preferred([s for s in allowed if s.gpus > reach], p),
        first=next((s for s in every if s.gpus == history.first_gpus and s.in_place), None),
        tokens_left=running.tokens_left or 0.0,
        deadline_left_s=_value_or(running.deadline_left_s, math.inf),
        restart_s=limits.restart_s,
        lost_s=0.0 if limits.saves_first else lost_s,
        z=_NORMAL.inv_cdf(running.confidence),
        others_wait=bool(waiting),
        pressure=limits.pressure,
    )


_UNLIMITED = 2**31


def _value_or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _preferred(alternatives: Sequence[JobSize], p: Parameters) -> tuple[JobSize, ...]:
    """One size for each GPU count: in place, unless another layout is clearly faster."""
    best: dict[int, JobSize] = {}
    for size in alternatives:
        rival = best.get(size.gpus)
        if rival is None or _preference(size, p) > _preference(rival, p):
            best[size.gpus] = size
    return tuple(best[gpus] for gpus in sorted(best))


def _preference(size: JobSize, p: Parameters) -> float:
    return size.tokens_per_s * (1.0 + p.in_place_within * size.in_place)


def choose_size(sizes: CandidateSizes, p: Parameters) -> SizeChoice:
    """Late: the fewest GPUs that meet the deadline. Early: the fewest that still do, if worth a restart."""
    if not sizes.in_time(sizes.present):
        return _when_late(sizes, p)
    smaller = [s for s in sizes.alternatives if s.gpus < sizes.present.gpus]
    fewer = [s for s in smaller if sizes.in_time(s, margin=p.shrink_margin)]
    reachable = [s for s in fewer if s.gpus * p.most_shrink >= sizes.present.gpus]
    worthwhile = [s for s in reachable if sizes.worth_shrinking(s, p)]
    if worthwhile:
        return _shrink(sizes, worthwhile[0])
    other = _other_layout(sizes, p)
    if other is not None:
        return other
    if reachable:
        why = f"{reachable[0].gpus} GPUs would meet the deadline too, but a restart costs more than it saves"
        return SizeChoice(why=why, oversized=True)
    return SizeChoice(why=_well_sized(sizes))


def _when_late(sizes: CandidateSizes, p: Parameters) -> SizeChoice:
    """The fewest GPUs (or another layout) that meet the deadline at the confidence, else at even odds.

    A job that may still be in time keeps its GPUs. Only a hopeless one releases GPUs.
    """
    late = _finish_text(sizes, sizes.present)
    able = [s for s in sizes.alternatives if s.gpus >= sizes.present.gpus]
    for z in (sizes.z, 0.0):
        if sizes.in_time(sizes.present, z=z):
            break
        good = [s for s in able if sizes.in_time(s, z=z)]
        if good and sizes.seconds(good[0]) < sizes.seconds(sizes.present):
            size = good[0]
            action = Action.GROW if size.gpus > sizes.present.gpus else Action.RELAYOUT
            odds = "" if z == sizes.z else " at even odds"
            return SizeChoice(action=action, size=size, why=f"{late}; {_finish_text(sizes, size)}{odds}")
    why = f"{late}, and no size up to {max((s.gpus for s in able), default=sizes.present.gpus)} GPUs meets it"
    chance = sizes.best_chance()
    if chance >= p.hopeless_chance:
        return SizeChoice(why=f"{why} for sure ({chance:.0%} likely at best)", never_in_time=True)
    released = _hopeless_shrink(sizes, p)
    return _shrink(sizes, released, why) if released else SizeChoice(why=why, never_in_time=True)


def _hopeless_shrink(sizes: CandidateSizes, p: Parameters) -> JobSize | None:
    """The fewest GPUs that are hardly slower than the first size, if worth the restart."""
    longest_s = sizes.longest_s(p.hopeless_slower)
    for size in sizes.alternatives:
        reachable = sizes.present.gpus > size.gpus >= sizes.present.gpus / p.most_shrink
        if reachable and sizes.seconds(size) <= longest_s and sizes.worth_shrinking(size, p):
            return size
    return None


def _shrink(sizes: CandidateSizes, size: JobSize, before: str = "") -> SizeChoice:
    gain = sizes.saves_gpu_hours(size) - sizes.price_gpu_hours(size)
    benefit = f"saves {gain:.3g} GPU-hours net"
    if gain <= 0:
        freed = sizes.freed_gpu_hours(size)
        benefit = f"frees {freed:.3g} GPU-hours for waiting jobs at a net cost of {-gain:.3g}"
    why = f"{before or _finish_text(sizes, sizes.present)}; {_finish_text(sizes, size)}, which {benefit}"
    return SizeChoice(action=Action.SHRINK, size=size, why=why)


def _other_layout(sizes: CandidateSizes, p: Parameters) -> SizeChoice | None:
    """Another layout on the same GPUs, if faster at the confidence and worth the restart."""
    for size in sizes.alternatives:
        if size.gpus != sizes.present.gpus or not sizes.in_time(size):
            continue
        confident_rate = size.tokens_per_s * math.exp(-sizes.z * size.sigma)
        gain = sizes.saves_gpu_hours(size) - sizes.price_gpu_hours(size)
        if confident_rate >= p.relayout_gain * sizes.present.tokens_per_s and gain > 0:
            faster = size.tokens_per_s / sizes.present.tokens_per_s - 1.0
            why = f"another layout on the same GPUs is {faster:.0%} faster: saves {gain:.3g} GPU-hours net"
            return SizeChoice(action=Action.RELAYOUT, size=size, why=why)
    return None


def _well_sized(sizes: CandidateSizes) -> str:
    return f"well sized: {_finish_text(sizes, sizes.present)}"


def _finish_text(sizes: CandidateSizes, size: JobSize) -> str:
    """When the run finishes with a size, relative to its deadline."""
    end_s = sizes.seconds(size, z=sizes.z)
    spare_s = sizes.deadline_left_s - end_s
    how = f"{format_duration(spare_s)} before" if spare_s >= 0 else f"{format_duration(-spare_s)} past"
    return f"{size.gpus} GPUs finish in {format_duration(end_s)}, {how} the deadline"
