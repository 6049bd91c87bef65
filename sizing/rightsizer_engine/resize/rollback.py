"""Rollback after a failed resize: which earlier size to return to. Shared by all executors."""

from collections.abc import Sequence

from rightsizer_engine.values import immutable


@immutable
class SizeAttempt:
    """A size at which a run was started, and whether it completed a step at that size.

    `layout` is the layout as text, empty if only the number of GPUs changes.
    """

    gpus: int
    trained: bool
    layout: str = ""


def has_trained(gpus: int, *, world: int, steps: bool) -> bool:
    """Whether a size has trained, from its newest record: `steps` completed with `world` ranks.

    A different world size (a missing rank, or the previous size) proves nothing about this size.
    """
    return steps and world == gpus


def rollback_target(trials: Sequence[SizeAttempt]) -> SizeAttempt | None:
    """The size to return to after a failure at the newest attempt; None: the training itself failed.

    A resize must not end a run that trained before. If the newest size never completed a step, the run
    returns to the newest size that did. If that is the same size, or none exists, there is no rollback.
    """
    if not trials or trials[-1].trained:
        return None
    last = trials[-1]
    good = next((trial for trial in reversed(trials) if trial.trained), None)
    same = good is not None and (good.gpus, good.layout) == (last.gpus, last.layout)
    return None if same else good
