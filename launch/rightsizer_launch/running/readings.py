"""The newest window of a job's marks as a `Reading`. Shared by all executors. Pure.

- Warm part: from `warm_up_s` after the run's first step, without its first two steps. Compilation, allocator
  growth and cold caches would understate the rate. A run that is still warming up is read in full; the policy
  does not act on it.
- Rate: tokens over the wall time of the window, minus the time in checkpoint saves. A median of step times
  hides stalls that the deadline includes; saves are left out because the policy's goodput includes them.
- Coverage: the share of the window's wall time that the marks account for. A scrape accounts for one scrape
  interval. A record accounts for the time since the previous record, unless steps between them are missing.
"""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import replace

from rightsizer_engine.domain.reading import Reading
from rightsizer_launch.running.marks import Mark, present_run, training_part

_COLD_STEPS = 1
"""Steps between the first mark of a run (the end of its first step) and its first warm mark."""


def reading_of(
    marks: Sequence[Mark], *, now_s: float, window_s: float, warm_up_s: float, source: str = "progress.jsonl"
) -> Reading:
    """The newest window of at least `window_s`, or all of the warm part if shorter; unknown without marks."""
    if not marks:
        return Reading()
    last, training = marks[-1], training_part(present_run(marks))
    reading = Reading(
        age_s=max(0.0, now_s - last.time_s),
        gpus=last.world,
        tokens_done=last.tokens,
        steps=last.step,
        phase=last.phase,
        checkpoint_age_s=None if last.saved_at_s is None else max(0.0, now_s - last.saved_at_s),
    )
    window = _window(_warm(training, now_s=now_s, warm_up_s=warm_up_s), window_s)
    span_s = window[-1].time_s - window[0].time_s if window else 0.0
    if span_s <= 0:
        return reading
    first, tokens = window[0], last.tokens - window[0].tokens
    saving_s, waiting_s = _grown(first.saving_s, last.saving_s), _grown(first.data_wait_s, last.data_wait_s)
    training_s = span_s - (saving_s or 0.0)
    return replace(
        reading,
        window_s=span_s,
        coverage=_coverage(window, span_s),
        samples=len(window),
        tokens_per_s=tokens / training_s if training_s > 0 else None,
        window_steps=last.step - first.step,
        data_wait_fraction=_share(waiting_s, span_s),
        checkpoint_fraction=_share(saving_s, span_s),
        queries=(f"{source}: {tokens:,.0f} tokens in {span_s:.0f} s, {saving_s or 0.0:.0f} s of it saving",),
    )


def _warm(training: Sequence[Mark], *, now_s: float, warm_up_s: float) -> Sequence[Mark]:
    """The warm part of a run; all of it while it is warming up.

    A run that stands still since its first step is warm by time: it would never be seen to be idle.
    """
    if not training or now_s - training[0].time_s < warm_up_s:
        return training
    from_s, from_step = training[0].time_s + warm_up_s, training[0].step + _COLD_STEPS
    first = bisect.bisect_left(training, from_s, key=lambda mark: mark.time_s)
    if training[-1].step == training[0].step:
        return training[first:]
    while first < len(training) and training[first].step < from_step:
        first += 1
    return training[first:]


def _window(marks: Sequence[Mark], window_s: float) -> Sequence[Mark]:
    """The shortest newest part that spans the window; all marks if they span less."""
    if not marks:
        return marks
    first = bisect.bisect_right(marks, marks[-1].time_s - window_s, key=lambda mark: mark.time_s) - 1
    return marks[max(0, first) :]


def _coverage(window: Sequence[Mark], span_s: float) -> float:
    pairs = itertools.pairwise(window)
    return min(1.0, sum(min(b.covers_s, max(0.0, b.time_s - a.time_s)) for a, b in pairs) / span_s)


def _grown(before: float | None, after: float | None) -> float | None:
    """The growth of a counter; a counter that first appears within the window began at zero."""
    return None if after is None else max(0.0, after - (before or 0.0))


def _share(part_s: float | None, whole_s: float) -> float | None:
    return None if part_s is None else min(1.0, part_s / whole_s)
