"""What a job's own records say about a window: the Reading that resizing decides from. Pure.

The agent in the job appends a record a step to progress.jsonl. GPU metrics come from elsewhere and fill what
is unknown here.
"""

import itertools
from collections.abc import Sequence
from dataclasses import fields, replace

from rightsizer.domain.reading import Phase, Reading
from rightsizer_launch.worker.progress import Record, data_wait_fraction

__all__ = ["filled", "reading_of", "trained_s"]

_TRAINING = ("step", "checkpoint")


def trained_s(records: Sequence[Record], *, now_s: float) -> float | None:
    """Seconds since the first step of the present world; None before it."""
    present = _present(records)
    first = next((record for record in present if record.event == "step"), None)
    return None if first is None else max(0.0, now_s - first.time)


def reading_of(records: Sequence[Record], *, now_s: float, window_s: float) -> Reading:
    """The window that ends now, no longer than the present world trains; unknown where nothing was said."""
    present = _present(records)
    age = trained_s(records, now_s=now_s)
    if not present or age is None:
        return Reading(phase=Phase.STARTUP if records else Phase.UNKNOWN)
    length_s = min(window_s, age)
    inside = [record for record in present if record.time > now_s - length_s and record.event in _TRAINING]
    steps = [record for record in inside if record.event == "step"]
    last = present[-1]
    if not steps or length_s <= 0:
        return Reading(age_s=now_s - last.time, gpus=last.world, phase=_phase(last))
    training_s = sum(record.step_s for record in steps)
    saving_s = _saving_s(inside)
    saved = next((record for record in reversed(records) if record.event == "checkpoint"), None)
    return Reading(
        window_s=length_s,
        age_s=now_s - last.time,
        coverage=min(1.0, (training_s + saving_s) / length_s),
        samples=len(steps),
        gpus=last.world,
        tokens_per_s=_tokens(steps) / training_s if training_s else None,
        tokens_done=last.tokens,
        steps=last.step,
        window_steps=len(steps),
        data_wait_fraction=data_wait_fraction(steps, over_s=length_s),
        checkpoint_fraction=min(1.0, saving_s / length_s),
        checkpoint_age_s=None if saved is None else max(0.0, now_s - saved.time),
        phase=_phase(last),
        queries=(f"progress.jsonl: step {last.step}, {len(steps)} steps in the window",),
    )


def filled(first: Reading, second: Reading) -> Reading:
    """The first reading, its unknowns from the second; the evidence of both."""
    known = {
        field.name: getattr(second, field.name)
        for field in fields(Reading)
        if getattr(first, field.name) is None and getattr(second, field.name) is not None
    }
    phase = first.phase if first.phase is not Phase.UNKNOWN else second.phase
    return replace(first, **known, phase=phase, queries=(*first.queries, *second.queries))


def _present(records: Sequence[Record]) -> Sequence[Record]:
    """Since the newest start: one world."""
    starts = [index for index, record in enumerate(records) if record.event == "start"]
    return records[starts[-1] :] if starts else records


def _phase(last: Record) -> Phase:
    return {"start": Phase.STARTUP, "step": Phase.TRAINING, "checkpoint": Phase.TRAINING}.get(
        last.event, Phase.UNKNOWN
    )


def _saving_s(inside: Sequence[Record]) -> float:
    """Time between a step's end and the end of the checkpoint that follows it."""
    pairs = itertools.pairwise(inside)
    return sum(max(0.0, after.time - before.time) for before, after in pairs if after.event == "checkpoint")


def _tokens(steps: Sequence[Record]) -> float:
    """Tokens of these steps; the first one's own are as many as the others' mean."""
    first, last = steps[0], steps[-1]
    if last.step > first.step:
        return (last.tokens - first.tokens) / (last.step - first.step) * len(steps)
    return last.tokens / max(1, last.step)
