"""Search one cluster for the fewest GPUs that meet every limit. Pruning never removes the best layout.

Two bounds keep the search fast:

1. Memory. A family that does not fit when sharded over the most GPUs allowed never fits.
2. Speed. A family's tokens/s per GPU does not rise with GPUs. Its rate at the fewest possible GPUs therefore
   bounds the count that it needs. _RATE_SLACK covers small violations (rounded batches, sharded optimizers).
   Families in host memory have no such bound: each GPU brings a link to the host.
"""

from collections.abc import Callable, Iterator

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.estimate.correction import configuration_slack
from rightsizer_engine.estimate.prediction import model_flop_per_token, peak_flop_per_s
from rightsizer_engine.estimate.uncertainty import step_sigma
from rightsizer_engine.search.gpu_counts import all_pairs, pairs
from rightsizer_engine.search.memory_fit import at_least_required_dp
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.pricing.layout_space import layouts, micro_batches
from rightsizer_engine.search.pricing.rows import Rows, price, price_pairs
from rightsizer_engine.search.selection import best_row, meets
from rightsizer_engine.values import immutable

_RATE_SLACK = 0.10
"""The most that tokens/s per GPU may rise with GPUs. Tests check it by brute force."""

_FEW_COUNTS = 12
"""Up to this many GPU counts are priced without bounds, which would cost more than they save."""

_FEW_FAMILIES = 8192
"""Up to this many families are tabulated at once, even if the search may not need all of them."""


_Pairs = tuple[Array, Array]
_BLOCK_ROWS = 6000
"""Rows priced per batch, before checking for a feasible row. A call costs as much as about 1,000 rows."""

_COUNTS_AT_ONCE = 16
_CELLS_AT_ONCE = 131072
"""Counts and cells of a table of counts by families: a larger one would not fit the CPU cache."""

_BOUND_ROUNDS = 4
_LEAST_LIFT = 1.02


@immutable
class SearchResult:
    """The chosen row (shape (1,)), all rows priced at its GPU count, and the number of rows priced in total.

    `fewer_gpus` is the row that finishes first among the rows priced at smaller GPU counts.
    """

    row: Rows
    at_count: Rows
    evaluated: int
    fewer_gpus: Rows | None = None


def rows_at(context: SearchContext, gpus: int, families: Array) -> Rows:
    """All legal rows of these families on exactly `gpus` GPUs."""
    return rows_on(context, np.asarray([gpus], dtype=np.int64), families)


def rows_on(context: SearchContext, counts: Array, families: Array) -> Rows:
    """All legal rows of these families on these GPU counts."""
    return price_pairs(context, *all_pairs(context, families, counts))


def fewest(
    context: SearchContext,
    allowed: Array,
    feasible: Array,
    *,
    good: Callable[[Rows], Array] | None = None,
) -> tuple[SearchResult | None, int]:
    """The fewest of the `allowed` GPUs (ascending) on which a feasible family meets the request, and rows.

    `good` are the rows that meet it, by default those in time and within the budget.
    """
    accepted = good or (lambda rows: meets(rows, context.request))
    if not allowed.size or not feasible.size:
        return None, 0
    floor = _fewest_by_peak(context)
    possible = allowed[allowed >= floor]
    if not possible.size:
        return None, 0
    if allowed.size <= _FEW_COUNTS:
        possible = allowed  # the same pairs for every deadline, so their rates are cached
    need, evaluated = np.zeros(feasible.shape), 0
    if feasible.size <= _FEW_FAMILIES:
        context.tables.fill(feasible)
    if possible.size > _FEW_COUNTS:
        need, evaluated = _fewest_by_family(context, feasible, int(possible[0]), int(possible[-1]))
    fewer_gpus: Rows | None = None
    for family, gpus in _blocks(context, feasible, need, possible):
        rows = price_pairs(context, family, gpus)
        rows = rows.take(np.flatnonzero(rows.gpus >= floor)) if possible is allowed else rows
        evaluated += len(rows)
        met = accepted(rows)
        count = int(rows.gpus[met].min(initial=2**62))
        fewer_gpus = _soonest(rows, fewer_gpus, below=count)
        if met.any():
            at_count = rows.take(np.flatnonzero(rows.gpus == count))
            row = best_row(at_count, accepted(at_count))
            assert row is not None  # one row at this count is accepted
            found = SearchResult(row=row, at_count=at_count, evaluated=evaluated, fewer_gpus=fewer_gpus)
            return found, evaluated
    return None, evaluated


def finishing_in_time(context: SearchContext, allowed: Array, feasible: Array) -> Iterator[Rows]:
    """All rows that may meet the deadline on the `allowed` counts, in blocks of ascending counts."""
    if not allowed.size or not feasible.size:
        return
    need, _ = _fewest_by_family(context, feasible, int(allowed[0]), int(allowed[-1]))
    for family, gpus in _blocks(context, feasible, need, allowed):
        yield price_pairs(context, family, gpus)


def _soonest(rows: Rows, earlier: Rows | None, *, below: int) -> Rows | None:
    """The row that finishes first among `rows` on fewer than `below` GPUs and `earlier`."""
    fewer = np.flatnonzero(rows.gpus < below)
    if not fewer.size:
        return earlier
    first = rows.take(fewer[[np.argmin(rows.due_s[fewer])]])
    if earlier is not None and earlier.due_s[0] <= first.due_s[0]:
        return earlier
    return first


def _configuration_spread(context: SearchContext, columns: Columns) -> float:
    """The largest ratio of a measured configuration's correction to its family's."""
    calibration = context.request.calibration
    if not calibration:
        return 1.0
    return configuration_slack(
        calibration, context.nouns, float(step_sigma(context.cases(columns)).max()), context.confidence_z
    )


def _most_by_family(context: SearchContext, feasible: Array) -> Array:
    """The most GPUs of each family: on more, a step of one micro-batch exceeds the global batch."""
    request, families = context.request, context.families.take(feasible)
    batch = request.workload.global_batch_sequences * (1 + request.batch_tolerance) + 1e-6
    return np.asarray(families.unit * np.floor(batch / families.axes["micro_batch"]))


def _fewest_by_peak(context: SearchContext) -> float:
    """GPUs that the run needs at 100 % of peak without losses: a lower bound for every plan."""
    request = context.request
    if request.deadline_s is None:
        return 1.0
    flop = float(model_flop_per_token(context.nouns)) * request.workload.tokens
    return flop / float(peak_flop_per_s(context.nouns.gpu, context.nouns.workload)) / request.deadline_s


def _fewest_by_family(context: SearchContext, feasible: Array, floor: int, most: int) -> tuple[Array, int]:
    """A lower bound on the GPUs that each family needs for the deadline; inf if `most` GPUs are too few.

    Families are priced at `floor`, then at the bound just computed, while the lowest bound still rises.
    Siblings share the bound of the sibling that recomputes least.
    """
    sibling = context.families.sibling[feasible]
    first = np.append(True, sibling[1:] != sibling[:-1])
    leaders = feasible[first]
    bound, evaluated = np.full(leaders.size, float(floor)), 0
    resident = context.families.axes["offload"][leaders] == 0
    for _ in range(_BOUND_ROUNDS):
        lowest = bound[resident].min(initial=np.inf)
        bound, priced = _raise_bound(context, leaders, bound, most)
        evaluated += priced
        raised = bound[resident].min(initial=np.inf)
        if not priced or not np.isfinite(raised) or raised < lowest * _LEAST_LIFT:
            break
    return bound[np.cumsum(first) - 1], evaluated


def _raise_bound(context: SearchContext, leaders: Array, bound: Array, most: int) -> tuple[Array, int]:
    """The bounds after pricing each family at its current bound."""
    request, families = context.request, context.families.take(leaders)
    finite = np.where(np.isfinite(bound), bound, 1.0)
    dp = at_least_required_dp(
        families, np.maximum(np.ceil(finite / families.unit - 1e-9), 1).astype(np.int64)
    )
    gpus = dp * families.unit
    batch = request.workload.global_batch_sequences * (1 + request.batch_tolerance)
    possible = np.isfinite(bound) & (gpus <= most) & (dp * families.axes["micro_batch"] <= batch)
    lifted = np.where(possible, gpus, np.inf)
    chosen = np.flatnonzero(possible & (families.axes["offload"] == 0))
    if request.deadline_s is None or not chosen.size:
        return lifted, 0
    columns, _ = layouts(families.take(chosen), gpus[chosen], request.workload, batch_tolerance=1.0)
    rows = price(context, leaders[chosen], gpus[chosen], columns)
    need = rows.gpus * rows.due_s / request.deadline_s / (1 + _RATE_SLACK)
    need /= _configuration_spread(context, columns)
    lifted[chosen] = np.where(need > most, np.inf, np.maximum(need, rows.gpus))
    return lifted, len(rows)


def _blocks(context: SearchContext, feasible: Array, need: Array, possible: Array) -> Iterator[_Pairs]:
    """(families, counts): the pairs that divide the batch, with count >= need, in ascending order of counts.

    A block has all pairs of its counts, and a little over _BLOCK_ROWS pairs if there are as many.
    """
    families, most = context.families.take(feasible), _most_by_family(context, feasible)
    remaining = possible[(possible >= need.min(initial=np.inf)) & (possible <= most.max(initial=0))]
    workload, blocks, rows = context.request.workload, [], 0
    while remaining.size:
        able = np.flatnonzero((most >= remaining[0]) & (need <= remaining[-1]))
        some = remaining[: max(_COUNTS_AT_ONCE, _CELLS_AT_ONCE // max(1, able.size))]
        remaining = remaining[some.size :]
        able = able[need[able] <= some[-1]]
        chosen, gpus = pairs(families.unit[able], need[able], some)
        chosen = able[chosen]
        per_pass = gpus // families.unit[chosen] * families.axes["micro_batch"][chosen]
        legal = micro_batches(per_pass, workload, batch_tolerance=context.request.batch_tolerance)[1]
        blocks.append((feasible[chosen[legal]], gpus[legal]))
        rows += int(np.count_nonzero(legal))
        if rows > _BLOCK_ROWS or not remaining.size:
            family, counts = zip(*blocks, strict=True)
            yield np.concatenate(family), np.concatenate(counts)
            blocks, rows = [], 0
