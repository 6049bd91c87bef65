"""The alternative worth naming: a few GPUs more for far less money; without a deadline, the cheapest."""

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.search.cluster_search import ClusterResult
from rightsizer_engine.search.gpu_counts import pairs
from rightsizer_engine.search.pricing.rows import Rows, price_pairs
from rightsizer_engine.search.selection import best, meets
from rightsizer_engine.search.types import Objective

_FEW_MORE = 1.25
_MUCH_LESS = 0.9
"""Up to 25 % more GPUs for at least 10 % fewer GPU-hours."""

_CHEAPER = 0.995
_FAMILIES = 128


def bargain(result: ClusterResult, nearby: Rows) -> Rows | None:
    """The row that a user who wanted the fewest GPUs may prefer; `nearby` are rows around the plan's."""
    request, row = result.context.request, result.best.row
    if request.objective is not Objective.GPUS or request.gpu_counts:
        return None
    if request.deadline_s is None:
        return _cheapest(nearby, _hours(row)[0] * _CHEAPER, meets(nearby, request))
    gpus = int(row.gpus[0])
    more = result.allowed[(result.allowed > gpus) & (result.allowed <= gpus * _FEW_MORE)]
    largest = nearby.gpus == nearby.gpus.max(initial=0)
    families = distinct(
        np.concatenate([_fastest(result.best.at_count), _fastest(nearby.take(np.flatnonzero(largest)))])
    )
    chosen, counts = pairs(result.context.families.unit[families], np.zeros(families.shape), more)
    rows = price_pairs(result.context, families[chosen], counts)
    return _cheapest(rows, _hours(row)[0] * _MUCH_LESS, meets(rows, request))


def _cheapest(rows: Rows, most: float, good: Array) -> Rows | None:
    """The best row of the count with the fewest GPU-hours, if they are below `most`."""
    hours = np.where(good, _hours(rows), np.inf)
    if not len(rows) or hours.min() > most:
        return None
    index = best(rows, good & (rows.gpus == rows.gpus[np.argmin(hours)]))
    return None if index is None else rows.take(np.asarray([index]))


def _hours(rows: Rows) -> Array:
    return np.asarray(rows.gpus * rows.finish_s)


def _fastest(rows: Rows) -> Array:
    return np.asarray(rows.family[np.argsort(rows.finish_s)[:_FAMILIES]])
