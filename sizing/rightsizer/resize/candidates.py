"""Which size a job needs at its measured rate: what each would take, cost and save, and the one to choose."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from rightsizer.domain.reading import Reading
from rightsizer.estimate.parameters import Parameters
from rightsizer.resize.types import Action, History, Limits, Pressure, Running, Size
from rightsizer.units import format_duration
from rightsizer.values import immutable

__all__ = ["CandidateSizes", "SizeChoice", "candidate_sizes", "choose_size"]

_HOUR_S = 3600.0
_NORMAL = NormalDist()


@immutable
class CandidateSizes:
    """A job's sizes with what is left to do. `others` are the sizes it may take besides the `present` one.

    `lost_s` is work of the present size that a restart does again, `z` the quantile of the deadline's
    confidence; `pressed` says that someone waits for GPUs.
    """

    present: Size
    alternatives: tuple[Size, ...]
    tokens_left: float
    deadline_left_s: float
    restart_s: float
    lost_s: float
    z: float
    others_wait: bool
    pressure: Pressure

    def seconds(self, size: Size, *, z: float = 0.0) -> float:
        """To the end of the run with this size, restart and repeated work included, at a quantile."""
        rate = size.tokens_per_s * size.goodput * math.exp(-z * size.sigma)
        if size is self.present:
            return self.tokens_left / rate
        return self.restart_s + (self.tokens_left + self.lost_s * self.present.tokens_per_s) / rate

    def in_time(self, size: Size, *, z: float | None = None, margin: float = 0.0) -> bool:
        """Whether the deadline holds at the confidence (or another quantile) with a share of it left over."""
        quantile = self.z if z is None else z
        return self.seconds(size, z=quantile) <= self.deadline_left_s * (1.0 - margin)

    def confidence(self, size: Size) -> float | None:
        """The probability that the deadline holds with this size; None without one."""
        if math.isinf(self.deadline_left_s):
            return None
        spare_s = self.deadline_left_s - (0.0 if size is self.present else self.restart_s)
        median_s = self.seconds(size) - (0.0 if size is self.present else self.restart_s)
        if spare_s <= 0 or median_s <= 0:
            return 1.0 if median_s <= 0 else 0.0
        return _NORMAL.cdf(math.log(spare_s / median_s) / max(size.sigma, 1e-6))

    def price_gpu_hours(self, size: Size) -> float:
        """The restart, during which the new GPUs are held, and the work done again."""
        again_s = self.lost_s * self.present.tokens_per_s / size.tokens_per_s
        return size.gpus * (self.restart_s + again_s) / _HOUR_S

    def saves_gpu_hours(self, size: Size) -> float:
        """GPU-hours to the end now, less those with this size, before the price of the change."""
        held = size.gpus * self.tokens_left / (size.tokens_per_s * size.goodput)
        return (self.present.gpus * self.seconds(self.present) - held) / _HOUR_S

    def freed_gpu_hours(self, size: Size) -> float:
        """GPU-hours that others get until this job would have ended as it is."""
        return (self.present.gpus - size.gpus) * self.seconds(self.present) / _HOUR_S

    def worth_shrinking(self, size: Size, p: Parameters) -> bool:
        """Whether giving GPUs back is worth the restart."""
        price = self.price_gpu_hours(size)
        if self.saves_gpu_hours(size) > price:
            return True
        handed = self.freed_gpu_hours(size) > p.worth_under_pressure * price
        return handed and (self.others_wait or self.pressure is Pressure.ON_PRESSURE)


@immutable
class SizeChoice:
    """The size to take and why; without one, why none: `hopeless` (late whatever it gets), `too_big`."""

    action: Action = Action.KEEP
    size: Size | None = None
    why: str
    never_in_time: bool = False
    oversized: bool = False


def candidate_sizes(
    r: Reading, running: Running, limits: Limits, history: History, p: Parameters
) -> CandidateSizes:
    """The job's sizes, recalibrated on what was measured, within its limits.

    The reading has passed the gates: rate, steps, GPUs and the work left are known.
    """
    assert running.scaling is not None  # noqa: S101 - a job without a plan is not sized
    rate = float(r.tokens_per_s or 0.0)
    every = running.scaling.sizes(gpus=running.gpus, tokens_per_s=rate, steps=int(r.window_steps or 0))
    present = next(
        (s for s in every if s.gpus == running.gpus and s.layout == running.layout),
        Size(gpus=running.gpus, tokens_per_s=rate, layout=running.layout),
    )
    most = min(limits.max_gpus or _UNLIMITED, running.gpus + _value_or(limits.free_gpus, _UNLIMITED))
    alternatives = [
        s for s in every if s is not present and limits.min_gpus <= s.gpus <= max(most, running.gpus)
    ]
    alternatives = [s for s in alternatives if s.gpus not in history.failed_gpus or s.gpus == running.gpus]
    waiting = r.others_waiting if limits.others_waiting is None else limits.others_waiting
    lost_s = _value_or(r.checkpoint_age_s, limits.checkpoint_interval_s or 0.0)
    return CandidateSizes(
        present=present,
        alternatives=_preferred(alternatives, p),
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


def _preferred(alternatives: Sequence[Size], p: Parameters) -> tuple[Size, ...]:
    """One size for each number of GPUs: in place, unless another layout is clearly faster."""
    found: dict[int, Size] = {}
    for size in alternatives:
        held = found.get(size.gpus)
        if held is None or _preference(size, p) > _preference(held, p):
            found[size.gpus] = size
    return tuple(found[gpus] for gpus in sorted(found))


def _preference(size: Size, p: Parameters) -> float:
    return size.tokens_per_s * (1.0 + p.in_place_within * size.in_place)


def choose_size(sizes: CandidateSizes, p: Parameters) -> SizeChoice:
    """Late: the fewest GPUs that are in time. Early: the fewest that still are, if that is worth it."""
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
        why = f"{reachable[0].gpus} GPUs would be in time too, but a restart costs more than they save"
        return SizeChoice(why=why, oversized=True)
    return SizeChoice(why=_well_sized(sizes))


def _when_late(sizes: CandidateSizes, p: Parameters) -> SizeChoice:
    """The fewest more GPUs (or another layout) in time at the confidence; else at even odds; else none.

    Where none is in time, GPUs that hardly speed it up are given back.
    """
    late = _finish_text(sizes, sizes.present)
    able = [s for s in sizes.alternatives if s.gpus >= sizes.present.gpus]
    for z in (sizes.z, 0.0):
        good = [s for s in able if sizes.in_time(s, z=z)]
        if good and sizes.seconds(good[0]) < sizes.seconds(sizes.present):
            size = good[0]
            action = Action.GROW if size.gpus > sizes.present.gpus else Action.RELAYOUT
            sure = "" if z == sizes.z else " at even odds"
            return SizeChoice(action=action, size=size, why=f"{late}; {_finish_text(sizes, size)}{sure}")
    most = max((s.gpus for s in able), default=sizes.present.gpus)
    never_in_time = f"{late}, and no size up to {most} GPUs is in time"
    longest_s = sizes.seconds(sizes.present) * (1.0 + p.hopeless_slower)
    for size in sizes.alternatives:
        near = sizes.seconds(size) <= longest_s
        reachable = sizes.present.gpus > size.gpus >= sizes.present.gpus / p.most_shrink
        if near and reachable and sizes.worth_shrinking(size, p):
            return _shrink(sizes, size, never_in_time)
    return SizeChoice(why=never_in_time, never_in_time=True)


def _shrink(sizes: CandidateSizes, size: Size, before: str = "") -> SizeChoice:
    gain = sizes.saves_gpu_hours(size) - sizes.price_gpu_hours(size)
    what = f"saves {gain:.3g} GPU-hours net"
    if gain <= 0:
        handed = sizes.freed_gpu_hours(size)
        what = f"hands {handed:.3g} GPU-hours to those who wait, for {-gain:.3g} more in all"
    why = f"{before or _finish_text(sizes, sizes.present)}; {_finish_text(sizes, size)}, which {what}"
    return SizeChoice(action=Action.SHRINK, size=size, why=why)


def _other_layout(sizes: CandidateSizes, p: Parameters) -> SizeChoice | None:
    """Another layout on the same GPUs, if it is faster for sure and saves more than it costs."""
    for size in sizes.alternatives:
        if size.gpus != sizes.present.gpus or not sizes.in_time(size):
            continue
        sure = size.tokens_per_s * math.exp(-sizes.z * size.sigma)
        gain = sizes.saves_gpu_hours(size) - sizes.price_gpu_hours(size)
        if sure >= p.relayout_gain * sizes.present.tokens_per_s and gain > 0:
            faster = size.tokens_per_s / sizes.present.tokens_per_s - 1.0
            why = f"another layout on as many GPUs is {faster:.0%} faster: saves {gain:.3g} GPU-hours net"
            return SizeChoice(action=Action.RELAYOUT, size=size, why=why)
    return None


def _well_sized(sizes: CandidateSizes) -> str:
    return f"well sized: {_finish_text(sizes, sizes.present)}"


def _finish_text(sizes: CandidateSizes, size: Size) -> str:
    """How the run ends with a size, against its deadline."""
    end_s = sizes.seconds(size, z=sizes.z)
    spare_s = sizes.deadline_left_s - end_s
    how = f"{format_duration(spare_s)} before" if spare_s >= 0 else f"{format_duration(-spare_s)} past"
    return f"{size.gpus} GPUs finish in {format_duration(end_s)}, {how} the deadline"
