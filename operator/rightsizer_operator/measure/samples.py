"""What a plan's workers said over the last while, as the engine's Reading. Pure.

A window never reaches over a restart or a resize: what was before is another run. After the operator itself
starts, nothing is known until a whole window has been seen.
"""

from dataclasses import replace

from rightsizer.domain.reading import Phase, Reading
from rightsizer.values import immutable
from rightsizer_operator.values.snapshot import Progress

__all__ = ["Sample", "extended", "joined", "reading_of"]

_COUNTERS = (
    "gpu_busy_mean",
    "gpu_busy_max",
    "tensor_active",
    "memory_active",
    "power_fraction",
    "memory_used_fraction",
)


@immutable
class Sample:
    """What was said at a moment, seconds on a clock that only goes forward."""

    at_s: float
    said: Progress


def extended(samples: tuple[Sample, ...], new: Sample, *, keep_s: float) -> tuple[Sample, ...]:
    """With the new sample, without those that are too old or from before a restart or a resize."""
    if samples and _another_run(samples[-1].said, new.said):
        return (new,)
    return (*(each for each in samples if new.at_s - each.at_s <= keep_s), new)


def reading_of(samples: tuple[Sample, ...], *, now_s: float, window_s: float, every_s: float) -> Reading:
    """The last `window_s` of samples that are expected `every_s`; what too few say nothing about is None."""
    inside = [each for each in samples if now_s - each.at_s <= window_s + every_s]
    if len(inside) < 2:
        return Reading()
    first, last = inside[0], inside[-1]
    span_s = last.at_s - first.at_s
    a, b = first.said, last.said
    saving_s = _more(a.checkpoint_s, b.checkpoint_s)
    waiting_s = _more(a.data_wait_s, b.data_wait_s)
    training_s = span_s - (saving_s or 0.0)
    tokens = b.tokens - a.tokens
    return Reading(
        window_s=span_s,
        age_s=now_s - last.at_s,
        coverage=min(1.0, (len(inside) - 1) * every_s / span_s) if span_s > 0 else None,
        samples=len(inside),
        gpus=b.workers,
        tokens_per_s=tokens / training_s if training_s > 0 else None,
        tokens_done=b.tokens,
        steps=b.step,
        window_steps=b.step - a.step,
        data_wait_fraction=_share(waiting_s, span_s),
        checkpoint_fraction=_share(saving_s, span_s),
        phase=Phase(b.phase) if b.phase in set(Phase) else Phase.UNKNOWN,
        queries=(f"its own metrics: {tokens:,.0f} tokens in {span_s:.0f} s",),
    )


def joined(own: Reading, counters: Reading | None) -> Reading:
    """What the workers said, and what the GPUs' counters show beside it."""
    if counters is None:
        return own
    seen = {name: getattr(counters, name) for name in _COUNTERS}
    found: Reading = replace(own, **seen, queries=(*own.queries, *counters.queries))
    return found


def _another_run(a: Progress, b: Progress) -> bool:
    """Whether workers started anew in between: fewer tokens, another world, another restart."""
    return b.tokens < a.tokens or a.workers != b.workers or a.restarts != b.restarts


def _more(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None or whole_s <= 0 else part_s / whole_s
