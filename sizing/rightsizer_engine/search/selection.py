"""Which priced rows meet a request, and which of them is taken: the simplest of about the fastest."""

import numpy as np

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.search.pricing.layout_space import complexity
from rightsizer_engine.search.pricing.rows import Rows
from rightsizer_engine.search.types import Request

SIMPLER_WITHIN = 0.02
"""A simpler layout wins over a layout less than 2 % faster: the prediction interval is far wider."""


def meets(rows: Rows, request: Request) -> Array:
    """Which rows meet deadline and budget. All rows already fit in memory."""
    good = np.ones(len(rows), dtype=bool)
    if request.deadline_s is not None:
        good &= rows.due_s <= request.deadline_s
    if request.max_usd is not None:
        good &= ~(rows.cost_usd > request.max_usd)
    return np.asarray(good)


def best(rows: Rows, good: Array) -> int | None:
    """The index of the simplest layout within SIMPLER_WITHIN of the fastest good row."""
    candidates = np.flatnonzero(good)
    if not candidates.size:
        return None
    finish = rows.due_s[candidates]
    near_fastest = candidates[finish <= finish.min() * (1 + SIMPLER_WITHIN)]
    order = np.lexsort((rows.due_s[near_fastest], np.round(complexity(rows.layout.take(near_fastest)), 6)))
    return int(near_fastest[order[0]])


def best_row(rows: Rows, good: Array) -> Rows | None:
    """The row of `best`, of shape (1,)."""
    index = best(rows, good)
    return None if index is None else rows.row(index)


def fastest_families(rows: Rows, most: int) -> Array:
    """The families of the `most` rows that finish first."""
    return np.asarray(rows.family[np.argsort(rows.finish_s)[:most]])
