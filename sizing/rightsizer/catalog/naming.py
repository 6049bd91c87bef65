"""Names as people and tools spell them: a normal form, an index from it to rows, the nearest known names."""

import difflib
import string
from collections.abc import Iterable, Mapping

from rightsizer.values import immutable

__all__ = ["Index", "Spellings", "build_index", "lookup", "nearest", "normal"]

Index = Mapping[str, tuple[str, ...]]
"""Normal form -> the names of the rows that answer to it."""

_VENDORS = ("nvidia", "amd", "instinct", "tesla", "geforce")
_DROPPED = str.maketrans("", "", string.punctuation.replace(".", "") + string.whitespace)
"""Dots stay: OPT 1.3b is not OPT 13b."""
_CANDIDATES = 6
_LIKENESS = 0.6
"""difflib's ratio from which a name counts as a near miss (its own default)."""
_FEW = 3
"""Names offered where none is near."""


@immutable
class Spellings:
    """One row's names: `exact` ones win over `derived` ones of other rows, `defaults` over both."""

    name: str
    exact: tuple[str, ...]
    cached_by_columns: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()


def build_index(rows: Iterable[Spellings]) -> Index:
    """Every spelling of every row, in normal form."""
    exact: dict[str, tuple[str, ...]] = {}
    cached_by_columns: dict[str, tuple[str, ...]] = {}
    defaults: dict[str, tuple[str, ...]] = {}
    for row in rows:
        for keys, spellings in ((exact, row.exact), (cached_by_columns, row.cached_by_columns)):
            for key in {normal(spelling) for spelling in spellings}:
                keys[key] = (*keys.get(key, ()), row.name)
        defaults |= {normal(spelling): (row.name,) for spelling in row.defaults}
        defaults.setdefault(normal(row.name), (row.name,))
    return cached_by_columns | exact | defaults


def lookup(known: Index, name: str) -> tuple[str, ...]:
    """The rows of that name: one, several where it is ambiguous, none where it is unknown."""
    return known.get(normal(name), ())


def normal(name: str) -> str:
    """Lower case, without spaces, the vendor and punctuation but dots; a memory always ends in "gb"."""
    key = name.lower().translate(_DROPPED)
    if key.startswith(_VENDORS):  # few do, and thousands are asked
        for vendor in _VENDORS:
            key = key.removeprefix(vendor) or key
    if not key.endswith(("g", "gib")):
        return key
    memory = key.removesuffix("ib")
    return memory + "b" if memory[-2:-1].isdigit() else key


def nearest(known: Index, name: str) -> tuple[str, ...]:
    """The rows whose spellings contain the name or resemble it, best first; else the few least unlike."""
    key = normal(name)[:100]
    if not key:
        return ()
    within = sorted((spelling for spelling in known if key in spelling), key=len)
    close = difflib.get_close_matches(key, list(known), n=2 * _CANDIDATES, cutoff=_LIKENESS)
    if not within and not close:
        close = difflib.get_close_matches(key, list(known), n=_FEW, cutoff=0.0)
    return tuple(dict.fromkeys(row for spelling in (*within, *close) for row in known[spelling]))[
        :_CANDIDATES
    ]
