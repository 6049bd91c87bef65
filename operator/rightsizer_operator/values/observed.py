"""Measured progress, as status.observed and status.samples hold it. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from rightsizer_api.quantities import format_time, parse_time
from rightsizer_engine.domain.reading import Phase
from rightsizer_engine.values import immutable
from rightsizer_launch.running.marks import Mark


@immutable
class ObservedProgress:
    """status.observed; None: not known. `progress` is the fraction of the tokens that is trained."""

    step: int | None = None
    tokens: float | None = None
    progress: float | None = None
    tokens_per_s: float | None = None
    restarts: int | None = None
    loss: float | None = None
    saved_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any] | None) -> "ObservedProgress":
        """Parse a status.observed."""
        said = document or {}
        return cls(
            step=said.get("step"),
            tokens=said.get("tokens"),
            progress=said.get("progress"),
            tokens_per_s=said.get("tokensPerSecond"),
            restarts=said.get("restarts"),
            loss=said.get("loss"),
            saved_at=parse_time(said.get("lastCheckpointTime")),
            updated_at=parse_time(said.get("updatedAt")),
        )

    def document(self) -> dict[str, Any]:
        """The value of status.observed; empty if nothing is known."""
        found = {
            "step": self.step,
            "tokens": self.tokens,
            "progress": self.progress,
            "tokensPerSecond": self.tokens_per_s,
            "restarts": self.restarts,
            "loss": self.loss,
            "lastCheckpointTime": self.saved_at and format_time(self.saved_at),
            "updatedAt": self.updated_at and format_time(self.updated_at),
        }
        return {name: value for name, value in found.items() if value is not None}


def sample_of(mark: Mark, ahead_s: float) -> Mapping[str, Any]:
    """A mark as one of status.samples; `ahead_s`: Unix time less the mark's clock."""
    attempt, restarts = mark.run
    found = {
        "unixSeconds": round(mark.time_s + ahead_s, 3),
        "step": mark.step,
        "tokens": mark.tokens,
        "workers": mark.world,
        "attempt": attempt,
        "restarts": restarts,
        "phase": mark.phase.value,
        "coversSeconds": round(mark.covers_s, 3),
        "savingSeconds": mark.saving_s,
        "dataWaitSeconds": mark.data_wait_s,
    }
    return {name: value for name, value in found.items() if value is not None}


def mark_of_sample(sample: Mapping[str, Any], ahead_s: float) -> Mark:
    """One of status.samples as a mark on a clock that is `ahead_s` behind Unix time."""
    return Mark(
        time_s=sample["unixSeconds"] - ahead_s,
        step=sample["step"],
        tokens=sample["tokens"],
        world=sample.get("workers"),
        run=(sample["attempt"], sample["restarts"]),
        phase=phase_of(sample["phase"]),
        covers_s=sample["coversSeconds"],
        saving_s=sample.get("savingSeconds"),
        data_wait_s=sample.get("dataWaitSeconds"),
    )


def phase_of(text: str) -> Phase:
    """The phase that a worker or a status names."""
    return Phase(text) if text in set(Phase) else Phase.UNKNOWN
