"""What Prometheus said last of every plan that runs, or why it said nothing. Pure."""

from collections.abc import Mapping
from dataclasses import field

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.preconditions import missing_data
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable

_PATIENCE = 3  # rounds of questions that may stay without an answer
_SLACK_S = 30.0  # what a round itself may take


@immutable
class Counters:
    """The newest answers. Not `awaited`: there is no Prometheus, workers alone are asked.

    `silence` says why it did not answer, `at_s` when it was asked, on a clock that only goes forward.
    """

    awaited: bool = False
    readings: Mapping[tuple[str, str], Reading] = field(default_factory=dict)
    silence: str = ""
    at_s: float = 0.0

    def lack(self, key: tuple[str, str], *, now_s: float, every_s: float) -> str:
        """Why nothing may be decided about a plan, in words; empty if it was seen, or none is awaited."""
        if not self.awaited:
            return ""
        if self.silence:
            return f"Prometheus does not answer: {self.silence}"
        if now_s - self.at_s > _PATIENCE * every_s + _SLACK_S:
            return f"Prometheus has not answered for {format_duration(now_s - self.at_s)}"
        seen = self.readings.get(key)
        if seen is None:
            return "Prometheus has not been asked about it yet"
        unseen = missing_data(seen, load_resize()).removeprefix("unknown: ")
        return f"Prometheus does not show it: {unseen}" if unseen else ""
