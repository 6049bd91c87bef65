"""How often workers may fail before a run is given up: by rate, or soon when it gets nowhere. Pure."""

from dataclasses import replace

from rightsizer.values import immutable

__all__ = ["RestartBudget"]

_FUTILE = 3
"""Failures in a row without one new step: the same thing will happen again."""


@immutable
class RestartBudget:
    """At most `limit` failures within `within_s` seconds; older ones are forgotten."""

    limit: int
    within_s: float
    times_s: tuple[float, ...] = ()
    futile: int = 0
    step: int = 0

    def failed(self, *, now_s: float, step: int) -> "RestartBudget":
        """The budget after a failure at furthest step `step`."""
        recent = tuple(t for t in self.times_s if now_s - t <= self.within_s)
        futile = self.futile + 1 if step <= self.step else 1
        return replace(self, times_s=(*recent, now_s), futile=futile, step=step)

    @property
    def spent(self) -> str:
        """Why to give up, in words; empty while there is budget."""
        if len(self.times_s) > self.limit:
            return f"{len(self.times_s)} failures within {self.within_s:.0f} s; the plan allows {self.limit}"
        if self.futile >= _FUTILE:
            return f"{self.futile} failures in a row without a single new step"
        return ""
