"""The budget of worker failures of a run: a rate limit, and a limit without progress. Pure."""

from dataclasses import replace

from rightsizer_engine.values import immutable

_FUTILE = 3
"""Consecutive failures without a new step after which a retry is pointless."""


@immutable
class RestartBudget:
    """At most `limit` failures within `within_s` seconds; older ones do not count."""

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
        """Why the budget is spent; empty while budget is left."""
        if len(self.times_s) > self.limit:
            return f"{len(self.times_s)} failures within {self.within_s:.0f} s; the plan allows {self.limit}"
        if self.futile >= _FUTILE:
            return f"{self.futile} consecutive failures without a new step"
        return ""
