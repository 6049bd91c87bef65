"""Match spellings of names: a normal form, an index from it to rows, and the nearest names."""

import difflib
import string
from collections.abc import Iterable, Mapping

from rightsizer.values import immutable

__all__ = ["Index", "Spellings", "build_index", "lookup", "nearest", "normal"]

Index = Mapping[str, tuple[str, ...]]
"""Normal form -> the names of the matching rows."""

_VENDORS = ("nvidia", "amd", "instinct", "tesla", "geforce")
_DROPPED = str.maketrans("", "", string.punctuation.replace(".", "") + string.whitespace)
"""Dots stay: OPT 1.3b is not OPT 13b."""
_CANDIDATES = 6
_LIKENESS = 0.7
"""difflib's ratio from which a name counts as a near miss."""


@immutable
class Spellings:
    """One row's names. `exact` names win over other rows' `derived` names, `defaults` over both."""

    name: str
    exact: tuple[str, ...]
    derived: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()


def build_index(rows: Iterable[Spellings]) -> Index:
    """Every spelling of every row, in normal form."""
    exact: dict[str, tuple[str, ...]] = {}
    derived: dict[str, tuple[str, ...]] = {}
    defaults: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for keys, spellings in ((exact, row.exact), (derived, row.derived)):
            for key in {normal(spelling) for spelling in spellings}:
                keys[key] = (*keys.get(key, ()), row.name)
        defaults |= {normal(spelling): (row.name,) for spelling in row.defaults}
        defaults.setdefault(normal(row.name), (row.name,))
    return derived | exact | defaults


def lookup(index: Index, name: str) -> tuple[str, ...]:
    """The rows of that name: several if it is ambiguous, none if it is unknown."""
    return index.get(normal(name), ())


def normal(name: str) -> str:
    """Lower case without spaces, vendor and punctuation except dots; a memory size always ends in "gb"."""
    key = name.lower().translate(_DROPPED)
    if key.startswith(_VENDORS):  # one test for all vendors: few names start with one
        for vendor in _VENDORS:
            key = key.removeprefix(vendor) or key
    if not key.endswith(("g", "gib")):
        return key
    memory = key.removesuffix("ib")
    return memory + "b" if memory[-2:-1].isdigit() else key


def nearest(index: Index, name: str) -> tuple[str, ...]:
    """The rows whose spellings contain or resemble the name without its owner, best first."""
    key = normal(name.rpartition("/")[2])[:100]
    if not key:
        return ()
    within = sorted((spelling for spelling in index if key in spelling), key=len)
    close = difflib.get_close_matches(key, list(index), n=2 * _CANDIDATES, cutoff=_LIKENESS)
    return tuple(dict.fromkeys(row for spelling in (*within, *close) for row in index[spelling]))[
        :_CANDIDATES
    ]
