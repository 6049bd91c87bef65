"""Scraped metrics of a plan's workers as the marks of the resize inputs. Pure.

After the operator itself starts, nothing is measured until it has scraped a whole window.
"""

from rightsizer.domain.reading import Phase
from rightsizer_launch.resize_inputs import Mark
from rightsizer_operator.values.snapshot import Progress

__all__ = ["mark_of"]


def mark_of(progress: Progress, *, at_s: float, unix_s: float, every_s: float) -> Mark:
    """A scrape at `at_s` on a monotonic clock, `unix_s` in Unix time; scrapes are `every_s` apart."""
    saved = progress.checkpoint_at
    return Mark(
        time_s=at_s,
        step=progress.step,
        tokens=progress.tokens,
        world=progress.workers,
        run=(progress.restarts,),
        phase=Phase(progress.phase) if progress.phase in set(Phase) else Phase.UNKNOWN,
        covers_s=every_s,
        saving_s=progress.checkpoint_s,
        data_wait_s=progress.data_wait_s,
        saved_at_s=None if saved is None else at_s - max(0.0, unix_s - saved.timestamp()),
    )
