"""Rows of the packaged tables: their cells, and the one row that a name means."""

import csv
from collections.abc import Mapping
from functools import cache

from rightsizer_engine import packaged
from rightsizer_engine.catalog.naming import Index, lookup, nearest
from rightsizer_engine.errors import UnknownNameError

_LISTED = {"gpu": "gpus", "model": "models", "nodeShape": "nodes"}
_ELSE = {"model": "; any other by its config.json"}

Row = Mapping[str, str]


@cache
def read(file: str) -> tuple[Row, ...]:
    """The rows of a packaged table."""
    header, *rows = csv.reader(packaged.text(file).splitlines())
    return tuple(dict(zip(header, row, strict=True)) for row in rows)


def split(cell: str) -> list[str]:
    """The parts of a cell that holds a list."""
    return [part for part in cell.split("|") if part]


def number(cell: str) -> float:
    """A cell as a number; 0 when empty."""
    return float(cell) if cell else 0.0


def optional(cell: str) -> float | None:
    """A cell as a number; None when empty."""
    return float(cell) if cell else None


def first(*values: float | None) -> float | None:
    """The first value that is stated."""
    return next((value for value in values if value is not None), None)


@cache
def named(file: str, cell: str) -> Mapping[str, Row]:
    """A table's rows by the exact names in a cell: much faster than an index of all spellings."""
    return {name: row for row in read(file) for name in split(row[cell])}


def one(field: str, name: str, index: Index, *, but: str = "", ambiguous: tuple[str, ...] = ()) -> str:
    """The only row of that name; an unknown or ambiguous name is an error that lists candidates.

    With `but` the name itself is none, nor is that spelling a candidate.
    """
    matches = (() if but else lookup(index, name)) or ambiguous
    if len(matches) == 1:
        return matches[0]
    if matches:
        remedy = f"ambiguous; use one of: {', '.join(matches)}"
        raise UnknownNameError(field, value=name, candidates=matches, remedy=remedy)
    near = nearest(index, name, but=but)
    listed = f"all: `rightsizer {_LISTED.get(field, field)}`{_ELSE.get(field, '')}"
    remedy = f"unknown; did you mean {', '.join(near)}? ({listed})" if near else f"unknown ({listed})"
    raise UnknownNameError(field, value=name, candidates=near, remedy=remedy)
