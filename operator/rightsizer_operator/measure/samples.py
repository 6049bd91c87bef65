"""Scraped metrics of a plan's workers as the marks of the resize inputs, and their copy in the status. Pure.

The status holds a few marks of the present run (`status.samples`), so that a new operator continues with the
window of the one before. Time without an operator lowers the window's coverage.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rightsizer_engine.domain.reading import Reading
from rightsizer_launch.running.marks import Mark, present_run, pruned
from rightsizer_launch.running.readings import reading_of
from rightsizer_operator.values.observed import mark_of_sample, phase_of, sample_of
from rightsizer_operator.values.snapshot import ReportedProgress

_STEPS_TO_STALL = 5
"""Usual step times without a step after which a job stands still. A guess."""
_RESOLUTION, _MOST_SAMPLES = 4, 48
"""Of the marks in the status: the window of a decision begins up to a quarter of its length early."""


def mark_of(progress: ReportedProgress, *, attempt: int, at_s: float, unix_s: float, every_s: float) -> Mark:
    """A scrape at `at_s` on a monotonic clock, `unix_s` in Unix time; scrapes are `every_s` apart."""
    saved = progress.checkpoint_at
    return Mark(
        time_s=at_s,
        step=progress.step,
        tokens=progress.tokens,
        world=progress.workers,
        run=(attempt, progress.restarts),
        phase=phase_of(progress.phase),
        covers_s=every_s,
        saving_s=progress.checkpoint_s,
        data_wait_s=progress.data_wait_s,
        saved_at_s=None if saved is None else at_s - max(0.0, unix_s - saved.timestamp()),
    )


def newest_reading(
    marks: Sequence[Mark], *, now_s: float, window_s: float, stall_s: float, warm_up_s: float
) -> Reading:
    """The reading of the window; of its last `stall_s` if the job made no step in them.

    A job that stands still has no rate, whatever it did hours ago. A job with longer steps does not stand
    still.
    """

    def read(over_s: float) -> Reading:
        return reading_of(marks, now_s=now_s, window_s=over_s, warm_up_s=warm_up_s, source="its own metrics")

    whole = read(window_s)
    step_s = (whole.window_s or 0.0) / (whole.window_steps or 1)
    newest = read(max(stall_s, _STEPS_TO_STALL * step_s))
    return newest if newest.window_steps == 0 else whole


def samples_of(marks: Sequence[Mark], *, keep_s: float, ahead_s: float) -> tuple[Mapping[str, Any], ...]:
    """The marks of the present run as status.samples; `ahead_s`: Unix time less the marks' clock."""
    few = pruned(present_run(marks), keep_s=keep_s, resolution=_RESOLUTION)
    return tuple(sample_of(mark, ahead_s) for mark in few[-_MOST_SAMPLES:])


def marks_of_samples(samples: Iterable[Mapping[str, Any]], *, ahead_s: float) -> tuple[Mark, ...]:
    """The marks of status.samples on a clock that is `ahead_s` behind Unix time."""
    marks = (mark_of_sample(sample, ahead_s) for sample in samples)
    return tuple(sorted(marks, key=lambda mark: mark.time_s))
