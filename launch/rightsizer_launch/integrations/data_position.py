"""The place of a training in its data: the batches of a DataLoader that it has already trained on."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from rightsizer_engine.errors import InputError

_ONE_LOADER = "a training needs one DataLoader that knows its batch size"


def batch_size_of(loader: Any) -> int:
    """Sequences of a rank's batch. InputError unless the loader knows them."""
    size = getattr(loader, "batch_size", None) or getattr(
        getattr(loader, "batch_sampler", None), "batch_size", None
    )
    if not isinstance(size, int):
        raise InputError("train_dataloader", value=type(loader).__name__, remedy=_ONE_LOADER)
    return size


def skip_first(loader: Any, batches: int) -> None:
    """Leave out the first `batches` of a DataLoader's next epoch, without loading them.

    An iterable data set has no sampler: it keeps its own place, or begins again.
    """
    batch_sampler: Any = getattr(loader, "batch_sampler", None)
    sampler = getattr(batch_sampler, "sampler", None)
    if batches and sampler is not None:
        batch_sampler.sampler = Skipping(sampler, batches * batch_size_of(loader))


class Skipping:
    """A sampler that leaves out its first indices, once."""

    def __init__(self, sampler: Any, indices: int) -> None:
        self._sampler, self._indices = sampler, indices

    def __iter__(self) -> Iterator[Any]:
        first, self._indices = self._indices, 0
        return islice(iter(self._sampler), first, None)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)
