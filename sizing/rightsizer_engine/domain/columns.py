"""Nouns as numpy columns, so that one formula prices one case or a million.

`Columns.of(noun)` holds 0-d arrays, `Columns.stack(nouns)` arrays of shape (n,); both broadcast against each
other. Enumerations become their integer codes, strings numpy strings, None NaN.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""A column: shape () or (n,)."""
Floats = NDArray[np.float64]
"""A column of counts, bytes or FLOPs: shape () or (n,)."""


class Columns:
    """Named, read-only columns of shape () or (n,).

    Rows taken from other columns are gathered when a column is first read: few formulas read them all.
    """

    def __init__(
        self,
        columns: Mapping[str, Array],
        *,
        source: "Columns | None" = None,
        index: "Array | slice" = slice(None),
    ) -> None:
        self.__dict__.update(columns)
        self._names = tuple(columns)
        self._derived: dict[str, Any] = {}
        self._source, self._index = source, index

    @classmethod
    def of(cls, noun: Any) -> "Columns":
        """Columns of shape () from one dataclass."""
        return cls({f.name: np.asarray(_plain(getattr(noun, f.name))) for f in _fields(noun)})

    @classmethod
    def stack(cls, nouns: Iterable[Any]) -> "Columns":
        """Columns of shape (n,) from n dataclasses of one type."""
        rows = list(nouns)
        return cls(
            {f.name: np.asarray([_plain(getattr(row, f.name)) for row in rows]) for f in _fields(rows[0])}
        )

    def __getattr__(self, name: str) -> Array:
        if name.startswith("_") or self._source is None:
            raise AttributeError(name)
        column: Array = getattr(self._source, name)
        taken = column if column.ndim == 0 else column[self._index]
        self.__dict__[name] = taken
        return taken

    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        inherited = () if self._source is None else self._source.names()
        return tuple(dict.fromkeys((*inherited, *self._names)))

    def take(self, index: "Array | slice") -> "Columns":
        """The rows at `index` (any numpy index); columns of shape () stay as they are."""
        return Columns({}, source=self, index=index)

    def replace(self, **changes: Array) -> "Columns":
        """A copy with some columns exchanged."""
        return Columns(changes, source=self)


def distinct(whole_numbers: Array) -> Array:
    """Every number once, ascending; none is negative.

    As np.unique, which would first import numpy's masked arrays: a tenth of a cold start.
    """
    return np.flatnonzero(np.bincount(whole_numbers))


def text_matches(texts: Array, test: Callable[[str], bool]) -> Array:
    """Whether each text passes a test.

    numpy's own comparisons of parts of texts are in a module that takes as long to import as a search does.
    """
    matches = [test(text) for text in texts.reshape(-1).tolist()]
    return np.asarray(matches, dtype=bool).reshape(texts.shape)


def floats(column: Any) -> Floats:
    """A column as float64: counts are exact up to 9e15."""
    return np.asarray(column, dtype=np.float64)


def choose(condition: Any, yes: Any, no: Any) -> Floats:
    """`yes` where the condition holds, else `no`."""
    return np.asarray(np.where(condition, yes, no), dtype=np.float64)


def equals(column: Any, kind: enum.StrEnum) -> NDArray[np.bool_]:
    """True where a column of names equals this member."""
    return np.asarray(np.asarray(column) == str(kind))


Noun = TypeVar("Noun")
Made = TypeVar("Made")


def cached_by_columns(function: Callable[[Noun], Made]) -> Callable[[Noun], Made]:
    """Cache the results of `function` on its Columns, which never change and which a search passes often."""
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def cached(noun: Noun) -> Made:
        if not isinstance(noun, Columns):
            return function(noun)
        kept = noun._derived
        if name not in kept:
            kept[name] = function(noun)
        made: Made = kept[name]
        return made

    return cached


def _fields(noun: Any) -> list[dataclasses.Field[Any]]:
    """The fields that can be columns: everything but tuples and nested nouns."""
    return [f for f in dataclasses.fields(noun) if f.metadata.get("column", True)]


def _plain(value: Any) -> Any:
    if value is None:
        return np.nan
    if isinstance(value, enum.IntEnum):
        return int(value)
    if isinstance(value, enum.StrEnum):
        return str(value)
    return value
