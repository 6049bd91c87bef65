"""A job's earlier sizes: its resizes, and the rates in its marks. Input of the resize policy. Pure."""

from collections.abc import Callable, Iterable, Sequence

from rightsizer_engine.resize.types import History, Visit
from rightsizer_engine.values import immutable
from rightsizer_launch.running.marks import Mark, earlier_runs


@immutable
class SizeChange:
    """A resize from `from_gpus`, or a rollback from `failed_gpus`, a size that never completed a step."""

    at_s: float
    failed_gpus: int | None = None
    from_gpus: int | None = None


def history_of(changes: Iterable[SizeChange]) -> History:
    """Earlier resizes; rollbacks count for the cool-down, and the sizes they left are not tried again."""
    rows = sorted(changes, key=lambda row: row.at_s)
    return History(
        last_resize_s=max((row.at_s for row in rows), default=None),
        failed_gpus=tuple(sorted({row.failed_gpus for row in rows if row.failed_gpus is not None})),
        first_gpus=rows[0].from_gpus if rows else None,
    )


def visits_of(
    marks: Sequence[Mark], *, layout: Callable[[Mark], str | None] = lambda _: ""
) -> tuple[Visit, ...]:
    """The mean rate of each run before the present one, saves left out, oldest first.

    `layout` is the layout at a mark as text; empty: the present one but dp; None: unknown, so no visit.
    """
    found = []
    for run in earlier_runs(marks):
        first, last, text = run[0], run[-1], layout(run[0])
        training_s = last.time_s - first.time_s - _saving_s(first, last)
        if last.world and training_s > 0 and last.tokens > first.tokens and text is not None:
            rate = (last.tokens - first.tokens) / training_s
            steps = last.step - first.step
            found.append(Visit(gpus=last.world, tokens_per_s=rate, steps=steps, layout=text))
    return tuple(found)


def _saving_s(first: Mark, last: Mark) -> float:
    return max(0.0, (last.saving_s or 0.0) - (first.saving_s or 0.0))
