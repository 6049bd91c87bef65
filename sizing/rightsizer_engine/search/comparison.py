"""The plan's comparison: other layouts, GPU counts and prices near it, and the curve over counts.

All are rows of the chosen cluster's search; none changes the chosen row.
"""

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.estimate.uncertainty import Z_80
from rightsizer_engine.search.cluster_search import ClusterResult
from rightsizer_engine.search.fewest import rows_on
from rightsizer_engine.search.gpu_counts import all_pairs, thin
from rightsizer_engine.search.pricing.rows import Rows, concatenate_rows, fitting_pairs, price_pairs
from rightsizer_engine.search.selection import best_row, fastest_families, meets
from rightsizer_engine.search.types import CurvePoint

_CURVE_POINTS = 12
_DOUBLINGS = 7
_FEWER_SIZES = 3
"""Smaller GPU counts priced, to report what fewer GPUs would do."""

_CURVE_FAMILIES = 128
_MORE_GPUS_FACTOR = 1.25
"""The runner-up with more GPUs has at least this multiple of the chosen count."""


def fits_on_fewer(result: ClusterResult) -> bool:
    """Whether any layout fits on the next smaller GPU counts."""
    fewer = result.allowed[result.allowed < result.best.row.gpus[0]][-_FEWER_SIZES:]
    family, counts = all_pairs(result.context, result.feasible, fewer)
    return bool(fitting_pairs(result.context, family, counts)[0].size)


def nearby_rows(result: ClusterResult) -> Rows:
    """All layouts on the chosen GPU count and its neighbours; the best families on more distant counts."""
    best, allowed = result.best, result.allowed
    gpus = int(best.row.gpus[0])
    nearby = np.concatenate(
        [allowed[allowed <= gpus][-1 - _FEWER_SIZES :], allowed[allowed >= gpus * _MORE_GPUS_FACTOR][:2]]
    )
    grid = _curve_gpus(result)
    distant = grid[(grid[:, None] != nearby).all(axis=1)]
    fastest = distinct(fastest_families(best.at_count, _CURVE_FAMILIES))
    near, far = (
        all_pairs(result.context, families, counts)
        for families, counts in ((result.feasible, nearby), (fastest, distant))
    )
    family, counts = (np.concatenate(parts) for parts in zip(near, far, strict=True))
    return price_pairs(result.context, family, counts)


def _curve_gpus(result: ClusterResult) -> Array:
    """GPU counts of the curve: a quarter to four times the chosen one; without a deadline doublings too."""
    allowed, gpus = result.allowed, int(result.best.row.gpus[0])
    near = thin(allowed[(allowed * 4 >= gpus) & (allowed <= gpus * 4)], _CURVE_POINTS)
    open_ended = result.context.request.deadline_s is None
    doublings = gpus * 2 ** np.arange(_DOUBLINGS if open_ended else 1)
    wanted = doublings[doublings <= allowed[-1]]
    return distinct(np.concatenate([near, allowed[np.searchsorted(allowed, wanted)], [gpus]]))


def on_fewer_gpus(result: ClusterResult, nearby: Rows) -> Rows | None:
    """The earliest finish on fewer GPUs, from the next smaller counts and the search's own rows."""
    rows = nearby.take(np.flatnonzero(nearby.gpus < result.best.row.gpus[0]))
    if result.best.fewer_gpus is not None:
        rows = concatenate_rows([rows, result.best.fewer_gpus])
    if not len(rows):
        return None
    soonest = int(np.argmin(rows.due_s))
    return best_row(rows, rows.gpus == rows.gpus[soonest])


def on_more_gpus(result: ClusterResult, nearby: Rows) -> Rows | None:
    """The best row on at least a quarter more GPUs."""
    larger = nearby.gpus >= result.best.row.gpus[0] * _MORE_GPUS_FACTOR
    good = meets(nearby, result.context.request) & larger
    return best_row(nearby, good & (nearby.gpus == nearby.gpus[good].min(initial=2**62)))


def other_parallelism(result: ClusterResult, nearby: Rows) -> Rows | None:
    """The best row on the same GPU count with a different combination of parallelism, in time or not."""
    row = result.best.row
    differs = nearby.layout.sharding != row.layout.sharding
    for name in ("tp", "pp", "cp", "ep"):
        differs = differs | ((getattr(nearby.layout, name) > 1) != (getattr(row.layout, name) > 1))
    return best_row(nearby, differs & (nearby.gpus == row.gpus[0]))


def curve(result: ClusterResult) -> tuple[CurvePoint, ...]:
    """Finish and cost over GPU counts. A count that finishes later than a smaller one is left out.

    The layouts that are fastest on the chosen count divide few other counts, so each count has its own.
    """
    staging, chosen = result.staging, int(result.best.row.gpus[0])
    named = np.asarray([staging.likely_gpus, staging.reserve_gpus] if staging else [], dtype=int)
    counts = distinct(np.append(_curve_gpus(result), named))
    priced = rows_on(result.context, counts, result.feasible)
    rows = {int(count): best_row(priced, priced.gpus == count) for count in counts}
    rows[chosen] = result.best.row
    points = [_point(result, row) for _, row in sorted(rows.items()) if row is not None]
    return tuple(
        point
        for index, point in enumerate(points)
        if point.gpus == chosen or all(point.finish_s < fewer.finish_s for fewer in points[:index])
    )


def _point(result: ClusterResult, row: Rows) -> CurvePoint:
    usd, wide = float(row.cost_usd[0]), float(np.exp(Z_80 * row.finish_sigma[0]))
    return CurvePoint(
        cluster=result.context.cluster,
        gpus=int(row.gpus[0]),
        finish_s=float(row.finish_s[0]),
        finish_lo_s=float(row.finish_s[0]) / wide,
        finish_hi_s=float(row.finish_s[0]) * wide,
        finish_at_confidence_s=float(row.finish_at_confidence_s[0]),
        cost_usd=None if np.isnan(usd) else usd,
    )
