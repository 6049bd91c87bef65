"""The alternative worth naming: a few GPUs more for far less money; without a deadline, the cheapest."""

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.search.cluster_search import ClusterResult
from rightsizer_engine.search.fewest import rows_on
from rightsizer_engine.search.pricing.rows import Rows
from rightsizer_engine.search.selection import best_row, fastest_families, meets
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
    largest = nearby.take(np.flatnonzero(nearby.gpus == nearby.gpus.max(initial=0)))
    fastest = [fastest_families(rows, _FAMILIES) for rows in (result.best.at_count, largest)]
    rows = rows_on(result.context, more, distinct(np.concatenate(fastest)))
    return _cheapest(rows, _hours(row)[0] * _MUCH_LESS, meets(rows, request))


def _cheapest(rows: Rows, most: float, good: Array) -> Rows | None:
    """The best row of the count with the fewest GPU-hours, if they are below `most`."""
    hours = np.where(good, _hours(rows), np.inf)
    if not len(rows) or hours.min() > most:
        return None
    return best_row(rows, good & (rows.gpus == rows.gpus[np.argmin(hours)]))


def _hours(rows: Rows) -> Array:
    return np.asarray(rows.gpus * rows.finish_s)
