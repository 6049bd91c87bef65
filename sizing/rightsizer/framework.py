"""What runs it: framework profiles as data. A profile holds facts about a framework's generation, never about a run."""

from dataclasses import dataclass

__all__ = ["Framework"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """One framework generation's facts; `known` is False for the honest unknown one (wider intervals)."""

    name: str
    known: bool = True
