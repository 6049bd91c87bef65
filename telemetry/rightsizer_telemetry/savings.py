"""The advice of a usage report: the GPUs that each workload would not need, and their cost."""

import math
from collections.abc import Sequence

from rightsizer_engine.values import immutable
from rightsizer_telemetry.usage import Usage, UsageReport


@immutable
class Saving:
    """One workload that would do the same work on fewer GPUs.

    `gpu_h` = held * (1 - needed / most held): what the GPUs too many held over the window. The rate of the
    work is assumed to stay, so it is an upper bound where fewer GPUs train more slowly.
    """

    use: Usage
    needs_gpus: int

    @property
    def gpus(self) -> int:
        """GPUs too many, at the time of most."""
        return self.use.peak_gpus - self.needs_gpus

    @property
    def gpu_h(self) -> float:
        """GPU-hours of the window."""
        return self.use.held_gpu_h * self.gpus / self.use.peak_gpus

    @property
    def usd(self) -> float | None:
        """Their price; None: no price is known."""
        price = self.use.price_usd_per_gpu_h
        return None if price is None else self.gpu_h * price

    @property
    def action(self) -> str:
        """The advice, as a sentence without its subject's name."""
        many = _gpus(self.use.peak_gpus)
        if self.needs_gpus == 0:
            end = "stop it" if self.use.gpus else "find out why before it runs again"
            return f"No kernel ran on its {many}: {end}"
        when = "Give it" if self.use.gpus else "Next time, give it"
        size = f"{when} {_gpus(self.needs_gpus)} instead of {self.use.peak_gpus}"
        return f"{size}: they were busy {self.use.busy_mean or 0.0:.0%} of the time"


@immutable
class Savings:
    """All savings, the dearest first; `late`: workloads left out, since their plans miss the deadline."""

    each: tuple[Saving, ...]
    late: tuple[Usage, ...] = ()

    @property
    def gpu_h(self) -> float:
        """GPU-hours of the window."""
        return math.fsum(one.gpu_h for one in self.each)

    @property
    def usd(self) -> float | None:
        """Their price, without those of unknown price; None: no price is known."""
        known = [one.usd for one in self.each if one.usd is not None]
        return math.fsum(known) if known else None

    @property
    def unpriced(self) -> Sequence[Saving]:
        """Those whose price is unknown."""
        return [one for one in self.each if one.usd is None]


def savings(report: UsageReport) -> Savings:
    """The workloads that would do the same work on fewer GPUs, without unmeasured ones and late plans."""
    fewer = [
        Saving(use=use, needs_gpus=use.needs_gpus)
        for use in report.workloads
        if use.needs_gpus is not None and use.needs_gpus < use.peak_gpus and use.held_gpu_h > 0
    ]
    late = [one for one in fewer if _plan(one.use) in report.late]
    found = [one for one in fewer if one not in late]
    found.sort(key=lambda one: (-(one.usd or 0.0), -one.gpu_h, one.use.workload))
    return Savings(each=tuple(found), late=tuple(one.use for one in late))


def _plan(use: Usage) -> tuple[str, str, str, str]:
    return use.executor, use.cluster, use.namespace, use.plan


def _gpus(count: int) -> str:
    return f"{count:,} GPU{'' if count == 1 else 's'}"
