"""Sizes that a run was tried at: what a failure at the newest of them means. Asked by every executor."""

from collections.abc import Sequence

from rightsizer.values import immutable

__all__ = ["SizeAttempt", "has_trained", "rollback_target"]


@immutable
class SizeAttempt:
    """A size that a run was started at, and whether a step was seen at it.

    `layout` is its layout in words, empty where nothing but the number of GPUs changes.
    """

    gpus: int
    trained: bool
    layout: str = ""


def has_trained(gpus: int, *, world: int, steps: bool) -> bool:
    """Whether a size trains, from the newest thing seen of it: `steps` made by `world` ranks.

    A world of fewer ranks (one is missing, or it is that of the size before) says nothing of the size.
    """
    return steps and world == gpus


def rollback_target(trials: Sequence[SizeAttempt]) -> SizeAttempt | None:
    """Where to go on after a failure at the newest trial; None: the failure is the training's own.

    What was asked for on a run that trained must not be what ends it. So a size at which no step was seen is
    left for the newest one at which some were; where that is the same size, or there is none, nothing is
    gained by another.
    """
    if not trials or trials[-1].trained:
        return None
    last = trials[-1]
    good = next((trial for trial in reversed(trials) if trial.trained), None)
    same = good is not None and (good.gpus, good.layout) == (last.gpus, last.layout)
    return None if same else good
