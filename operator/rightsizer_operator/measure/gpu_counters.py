"""The newest GPU metrics of all running plans from Prometheus, or why there are none. Pure."""

from collections.abc import Hashable, Mapping
from dataclasses import field

from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_operator.values.metadata import Key

_MISSED_ROUNDS = 3
"""Rounds of queries after which the last answer is too old."""
_ROUND_S = 30.0
"""What a round itself may take."""


@immutable
class Counters:
    """The newest response. Not `awaited`: there is no Prometheus; only workers are read.

    `at_s` is the time of the queries, on a monotonic clock.
    """

    awaited: bool = False
    readings: Mapping[Hashable, Reading | Missing] | Missing = field(default_factory=dict)
    at_s: float = 0.0

    def reading(self, key: Key, *, now_s: float, every_s: float) -> Reading | Missing | None:
        """A plan's metrics; `Missing`: no decision is allowed on the plan; None: none are awaited."""
        readings = {} if isinstance(self.readings, Missing) else self.readings
        if not self.awaited:
            return readings.get(key)
        if isinstance(self.readings, Missing):
            return self.readings
        if now_s - self.at_s > _MISSED_ROUNDS * every_s + _ROUND_S:
            return Missing(reason=f"Prometheus has not answered for {format_duration(now_s - self.at_s)}")
        return readings.get(key, Missing(reason="Prometheus has not been asked about it yet"))
