"""Which size a job needs at its measured rate: what each would take, cost and save, and the one to choose."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from rightsizer.domain.reading import Reading
from rightsizer.estimate.parameters import Parameters
from rightsizer.resize.types import Action, History, Limits, Pressure, Running, Size
from rightsizer.units import format_duration
from rightsizer.values import immutable

__all__ = ["Choice", "Need", "chosen", "need"]

_HOUR_S = 3600.0
_NORMAL = NormalDist()


@immutable
class Need:
    """A job's sizes with what is left to do. `others` are the sizes it may take besides the `present` one.

    `lost_s` is work of the present size that a restart does again, `z` the quantile of the deadline's
    confidence; `pressed` says that someone waits for GPUs.
    """

    present: Size
    others: tuple[Size, ...]
    tokens_left: float
    deadline_left_s: float
    restart_s: float
    lost_s: float
    z: float
    pressed: bool
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

    def hands_over_gpu_hours(self, size: Size) -> float:
        """GPU-hours that others get until this job would have ended as it is."""
        return (self.present.gpus - size.gpus) * self.seconds(self.present) / _HOUR_S

    def worth(self, size: Size, p: Parameters) -> bool:
        """Whether giving GPUs back is worth the restart."""
        price = self.price_gpu_hours(size)
        if self.saves_gpu_hours(size) > price:
            return True
        handed = self.hands_over_gpu_hours(size) > p.worth_under_pressure * price
        return handed and (self.pressed or self.pressure is Pressure.ON_PRESSURE)


@immutable
class Choice:
    """The size to take and why; without one, why none: `hopeless` (late whatever it gets), `too_big`."""

    action: Action = Action.KEEP
    size: Size | None = None
    why: str
    hopeless: bool = False
    too_big: bool = False


def need(r: Reading, running: Running, limits: Limits, history: History, p: Parameters) -> Need:
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
    most = min(limits.max_gpus or _UNLIMITED, running.gpus + _or(limits.free_gpus, _UNLIMITED))
    others = [s for s in every if s is not present and limits.min_gpus <= s.gpus <= max(most, running.gpus)]
    others = [s for s in others if s.gpus not in history.failed_gpus or s.gpus == running.gpus]
    waiting = r.others_waiting if limits.others_waiting is None else limits.others_waiting
    lost_s = _or(r.checkpoint_age_s, limits.checkpoint_interval_s or 0.0)
    return Need(
        present=present,
        others=_preferred(others, p),
        tokens_left=running.tokens_left or 0.0,
        deadline_left_s=_or(running.deadline_left_s, math.inf),
        restart_s=limits.restart_s,
        lost_s=0.0 if limits.saves_first else lost_s,
        z=_NORMAL.inv_cdf(running.confidence),
        pressed=bool(waiting),
        pressure=limits.pressure,
    )


_UNLIMITED = 2**31


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _preferred(others: Sequence[Size], p: Parameters) -> tuple[Size, ...]:
    """One size for each number of GPUs: in place, unless another layout is clearly faster."""
    found: dict[int, Size] = {}
    for size in others:
        held = found.get(size.gpus)
        if held is None or _handicapped(size, p) > _handicapped(held, p):
            found[size.gpus] = size
    return tuple(found[gpus] for gpus in sorted(found))


def _handicapped(size: Size, p: Parameters) -> float:
    return size.tokens_per_s * (1.0 + p.in_place_within * size.in_place)


def chosen(needs: Need, p: Parameters) -> Choice:
    """Late: the fewest GPUs that are in time. Early: the fewest that still are, if that is worth it."""
    if not needs.in_time(needs.present):
        return _late(needs, p)
    smaller = [s for s in needs.others if s.gpus < needs.present.gpus]
    fewer = [s for s in smaller if needs.in_time(s, margin=p.shrink_margin)]
    reachable = [s for s in fewer if s.gpus * p.most_shrink >= needs.present.gpus]
    worthwhile = [s for s in reachable if needs.worth(s, p)]
    if worthwhile:
        return _shrunk(needs, worthwhile[0])
    other = _other_layout(needs, p)
    if other is not None:
        return other
    if reachable:
        why = f"{reachable[0].gpus} GPUs would be in time too, but a restart costs more than they save"
        return Choice(why=why, too_big=True)
    return Choice(why=_spare(needs))


def _late(needs: Need, p: Parameters) -> Choice:
    """The fewest more GPUs (or another layout) in time at the confidence; else at even odds; else none.

    Where none is in time, GPUs that hardly speed it up are given back.
    """
    late = _ending(needs, needs.present)
    able = [s for s in needs.others if s.gpus >= needs.present.gpus]
    for z in (needs.z, 0.0):
        good = [s for s in able if needs.in_time(s, z=z)]
        if good and needs.seconds(good[0]) < needs.seconds(needs.present):
            size = good[0]
            action = Action.GROW if size.gpus > needs.present.gpus else Action.RELAYOUT
            sure = "" if z == needs.z else " at even odds"
            return Choice(action=action, size=size, why=f"{late}; {_ending(needs, size)}{sure}")
    most = max((s.gpus for s in able), default=needs.present.gpus)
    hopeless = f"{late}, and no size up to {most} GPUs is in time"
    longest_s = needs.seconds(needs.present) * (1.0 + p.hopeless_slower)
    for size in needs.others:
        near = needs.seconds(size) <= longest_s
        reachable = needs.present.gpus > size.gpus >= needs.present.gpus / p.most_shrink
        if near and reachable and needs.worth(size, p):
            return _shrunk(needs, size, hopeless)
    return Choice(why=hopeless, hopeless=True)


def _shrunk(needs: Need, size: Size, before: str = "") -> Choice:
    gain = needs.saves_gpu_hours(size) - needs.price_gpu_hours(size)
    what = f"saves {gain:.3g} GPU-hours net"
    if gain <= 0:
        handed = needs.hands_over_gpu_hours(size)
        what = f"hands {handed:.3g} GPU-hours to those who wait, for {-gain:.3g} more in all"
    why = f"{before or _ending(needs, needs.present)}; {_ending(needs, size)}, which {what}"
    return Choice(action=Action.SHRINK, size=size, why=why)


def _other_layout(needs: Need, p: Parameters) -> Choice | None:
    """Another layout on the same GPUs, if it is faster for sure and saves more than it costs."""
    for size in needs.others:
        if size.gpus != needs.present.gpus or not needs.in_time(size):
            continue
        sure = size.tokens_per_s * math.exp(-needs.z * size.sigma)
        gain = needs.saves_gpu_hours(size) - needs.price_gpu_hours(size)
        if sure >= p.relayout_gain * needs.present.tokens_per_s and gain > 0:
            faster = size.tokens_per_s / needs.present.tokens_per_s - 1.0
            why = f"another layout on as many GPUs is {faster:.0%} faster: saves {gain:.3g} GPU-hours net"
            return Choice(action=Action.RELAYOUT, size=size, why=why)
    return None


def _spare(needs: Need) -> str:
    return f"well sized: {_ending(needs, needs.present)}"


def _ending(needs: Need, size: Size) -> str:
    """How the run ends with a size, against its deadline."""
    end_s = needs.seconds(size, z=needs.z)
    spare_s = needs.deadline_left_s - end_s
    how = f"{format_duration(spare_s)} before" if spare_s >= 0 else f"{format_duration(-spare_s)} past"
    return f"{size.gpus} GPUs finish in {format_duration(end_s)}, {how} the deadline"
