"""What a run's records add up to: position, pace, what was lost, where the time went. Pure."""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from rightsizer.values import immutable
from rightsizer_launch.worker.progress import Record

__all__ = ["PHASES", "Pace", "Tally", "pace", "warm_steps"]

PHASES = ("startup", "training", "checkpoint", "recovery")
"""Where wall time goes: until an attempt's first step, in steps, in saves, from a failure to the restart."""

_WARM_UP_STEPS = 2  # after every start the first steps pay for lazy initialisation
_RECENT_STEPS = 50
_CURVE_POINTS = 50


@immutable
class Tally:
    """A fold over records. `best_step` is the furthest step ever reached; `lost_steps` were done again."""

    step: int = 0
    tokens: float = 0.0
    loss: float | None = None
    first_loss: float | None = None
    workers: int = 0
    pids: tuple[int, ...] = ()
    starts: int = 0
    best_step: int = 0
    lost_steps: int = 0
    tokens_per_s: float = 0.0
    saved_step: int = 0
    saved_time: float = 0.0
    saved_path: str = ""
    attempt: int = 0
    last_time: float = 0.0
    finished: bool = False
    phases_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    steps: tuple[Record, ...] = ()

    def add(self, records: Iterable[Record], *, began: Mapping[int, float] | None = None) -> "Tally":
        """The tally with more records; `began` says when (Unix time) each attempt was launched."""
        tally = self
        for record in records:
            tally = tally._add(record, (began or {}).get(record.attempt, 0.0))
        return tally

    def _add(self, record: Record, attempt_began: float) -> "Tally":
        common = replace(
            self,
            step=record.step,
            tokens=record.tokens,
            workers=record.world,
            attempt=record.attempt,
            last_time=record.time,
        )
        if record.event == "start":
            return _started(self, common, record, attempt_began)
        if record.event == "step":
            return replace(
                common,
                loss=record.loss,
                first_loss=record.loss if self.first_loss is None else self.first_loss,
                best_step=max(self.best_step, record.step),
                tokens_per_s=record.tokens_per_s,
                phases_s=_more(self.phases_s, "training", record.step_s),
                steps=(*self.steps, record),
            )
        if record.event == "checkpoint":
            return replace(
                common,
                saved_step=record.step,
                saved_time=record.time,
                saved_path=record.path,
                phases_s=_more(self.phases_s, "checkpoint", record.time - self.last_time),
            )
        return replace(common, finished=self.finished or record.event == "finish")

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """The loss by step, thinned to some fifty points; of a repeated step the last."""
        by_step = {record.step: record.loss for record in self.steps if record.loss is not None}
        points = sorted(by_step.items())
        stride = max(1, -(-len(points) // _CURVE_POINTS))
        return tuple(points[::stride])

    @property
    def recent_tokens_per_s(self) -> float | None:
        """The median pace of the latest steps past the warm-up; None while there is none."""
        warm = warm_steps(self.steps[-_RECENT_STEPS:], self.attempt)
        if len(warm) < 2 or warm[-1].step <= warm[0].step:
            return None
        tokens_per_step = (warm[-1].tokens - warm[0].tokens) / (warm[-1].step - warm[0].step)
        return tokens_per_step / max(statistics.median(r.step_s for r in warm), 1e-9)


@immutable
class Pace:
    """The measured pace of one attempt: medians over its steps after each start's warm-up."""

    attempt: int
    workers: int
    steps: int
    step_s: float
    tokens_per_s: float


def warm_steps(steps: Iterable[Record], attempt: int) -> list[Record]:
    """The steps of `attempt` past each start's warm-up, on as many workers as the last of them."""
    warm: list[Record] = []
    since_start, last = 0, None
    for record in steps:
        if record.attempt != attempt:
            continue
        key = (record.restart, record.world)
        since_start = since_start + 1 if key == last else 1
        last = key
        if since_start > _WARM_UP_STEPS:
            warm.append(record)
    return [record for record in warm if record.world == warm[-1].world]


def pace(steps: Iterable[Record], attempt: int, *, tokens_per_step: float) -> Pace | None:
    """The pace of `attempt`; None while it has no step past its warm-up."""
    warm = warm_steps(steps, attempt)
    if not warm:
        return None
    times = [record.step_s for record in warm]
    step_s = statistics.median(times)
    return Pace(
        attempt=attempt,
        workers=warm[-1].world,
        steps=len(times),
        step_s=step_s,
        tokens_per_s=tokens_per_step / max(step_s, 1e-9),
    )


def _started(before: Tally, common: Tally, record: Record, attempt_began: float) -> Tally:
    same = record.attempt == before.attempt
    since = before.last_time if same else attempt_began or record.time
    return replace(
        common,
        pids=record.pids,
        starts=before.starts + 1,
        lost_steps=before.lost_steps + max(0, before.best_step - record.step),
        best_step=record.step if record.step < before.best_step else before.best_step,
        phases_s=_more(before.phases_s, "recovery" if same else "startup", record.time - since),
    )


def _more(phases_s: dict[str, float], phase: str, seconds: float) -> dict[str, float]:
    return phases_s | {phase: phases_s[phase] + max(0.0, seconds)}
