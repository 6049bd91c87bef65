"""Match spellings of names: a normal form, an index from it to rows, and the nearest names."""

import difflib
import string
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.values import immutable

Index = Mapping[str, tuple[str, ...]]
"""Normal form -> the names of the matching rows."""

_VENDORS = ("nvidia", "amd", "instinct", "tesla", "geforce")
_DROPPED = str.maketrans("", "", string.punctuation.replace(".", "") + string.whitespace)
"""Dots stay: OPT 1.3b is not OPT 13b."""
_CANDIDATES = 6
_LONGEST = 100
_LIKENESS = 0.7
"""difflib's ratio from which a name counts as a near miss."""
_COMPARED = 48
"""Spellings that difflib compares with an unknown name, of those that share the most pairs of letters."""


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


def nearest(index: Index, name: str, *, but: str = "") -> tuple[str, ...]:
    """The rows whose spellings (without `but`) contain or resemble the name without its owner, best first.

    Its time is bounded, whatever the name: difflib compares it with a few spellings only.
    """
    key = normal(name.rpartition("/")[2])[:_LONGEST]
    if not key:
        return ()
    spellings = tuple(index)
    within = sorted((spelling for spelling in spellings if key in spelling), key=len)
    close = difflib.get_close_matches(key, _alike(spellings, key), n=2 * _CANDIDATES, cutoff=_LIKENESS)
    found = (row for spelling in (*within, *close) if spelling != but for row in index[spelling])
    return tuple(dict.fromkeys(found))[:_CANDIDATES]


def _alike(spellings: tuple[str, ...], key: str) -> list[str]:
    """The spellings that share the most pairs of letters with the name, for their lengths."""
    rows, table, lengths = _table(spellings)
    mine = _pairs(key)
    common = table[[rows[pair] for pair in mine if pair in rows]].sum(axis=0)
    order = np.argsort(-common / (lengths + len(mine)), kind="stable")
    return [spellings[at] for at in order[:_COMPARED]]


@lru_cache(maxsize=8)
def _table(spellings: tuple[str, ...]) -> tuple[Mapping[str, int], Array, Array]:
    """The row of each pair of letters, which spellings have it, and how many pairs each has."""
    pairs = [_pairs(text) for text in spellings]
    rows = {pair: row for row, pair in enumerate(sorted(frozenset().union(*pairs)))}
    table = np.zeros((len(rows), len(spellings)), dtype=bool)
    for column, own in enumerate(pairs):
        table[[rows[pair] for pair in own], column] = True
    return rows, table, table.sum(axis=0)


def _pairs(text: str) -> frozenset[str]:
    """Each two letters side by side; the first and the last beside nothing."""
    framed = f" {text} "
    return frozenset(framed[at : at + 2] for at in range(len(framed) - 1))
