"""Search one cluster for the fewest GPUs that meet every limit. Pruning never removes the best layout.

Two bounds keep the search fast:

1. Memory. A family that does not fit when sharded over the most GPUs allowed never fits.
2. Speed. A family's tokens/s per GPU does not rise with GPUs. Its rate at the fewest possible GPUs therefore
   bounds the count that it needs. RATE_SLACK covers small violations (rounded batches, sharded optimizers).
   Families in host memory have no such bound: each GPU brings a link to the host.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns, distinct
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.correction import configuration_slack, measured_layouts
from rightsizer_engine.estimate.prediction import model_flop_per_token, peak_flop_per_s
from rightsizer_engine.estimate.uncertainty import step_sigma
from rightsizer_engine.search.layout_space import Families, complexity, layouts, micro_batches
from rightsizer_engine.search.pricing import Rows, SearchContext, fit_layouts, price, price_pairs
from rightsizer_engine.search.types import Request
from rightsizer_engine.values import immutable

RATE_SLACK = 0.10
"""The most that tokens/s per GPU may rise with GPUs. Tests check it by brute force."""

_FEW_COUNTS = 12
"""Up to this many GPU counts are priced without bounds, which would cost more than they save."""

_FEW_FAMILIES = 8192
"""Up to this many families are tabulated at once, even if the search may not need all of them."""

_NEVER_FITS_FACTOR = 1.5
"""A family that takes this multiple of GPU memory with many replicas does not fit with one replica either.

One replica saves communicator buffers, and a micro-batch in some interleaved stages: far less than a half.
"""

_CALIBRATED_FACTOR = 2.0
"""With calibration, families that take up to this multiple of GPU memory are still considered."""

_Pairs = tuple[Array, Array]
_DEGREES = {f.name for f in fields(Layout)}
_BLOCK_ROWS = 6000
"""Rows priced per batch, before checking for a feasible row. A call costs as much as about 1,000 rows."""

_COUNTS_AT_ONCE = 16
_CELLS_AT_ONCE = 131072
"""Counts and cells of a table of counts by families: a larger one would not fit the CPU cache."""

_BOUND_ROUNDS = 4
_LEAST_LIFT = 1.02

SIMPLER_WITHIN = 0.02
"""A simpler layout wins over a layout less than 2 % faster: the prediction interval is far wider."""


@immutable
class SearchResult:
    """The chosen row (shape (1,)), all rows priced at its GPU count, and the number of rows priced in total.

    `fewer_gpus` is the row that finishes first among the rows priced at smaller GPU counts.
    """

    row: Rows
    at_count: Rows
    evaluated: int
    fewer_gpus: Rows | None = None


def counts(request: Request, cluster: Cluster, *, limit: int | None = None) -> Array:
    """GPU counts to search: divisors of a node, then whole nodes, up to the limit. MIG slices: one."""
    most = min(cluster.max_gpus, request.max_gpus or cluster.max_gpus) if limit is None else limit
    most = min(most, 1) if cluster.gpu.is_slice else most
    node = max(1, cluster.gpus_per_node)
    most -= (request.spare_nodes or 0) * node
    inside = [d for d in range(1, node) if node % d == 0]
    every = np.concatenate([np.asarray(inside, dtype=np.int64), np.arange(node, max(most, 0) + 1, node)])
    if request.gpu_counts:
        every = every[np.isin(every, request.gpu_counts)]
    return np.asarray(every[(every >= request.min_gpus) & (every <= most)])


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


def rows_at(context: SearchContext, gpus: int, feasible: Array) -> Rows:
    """All legal rows of the `feasible` families on exactly `gpus` GPUs."""
    units = context.families.unit[feasible]
    chosen = feasible[(gpus % units == 0) & (units <= gpus)]
    return price_pairs(context, chosen, np.full(chosen.shape, gpus, dtype=np.int64))


def fewest_exhaustive(context: SearchContext, allowed: Array) -> SearchResult | None:
    """The result of `fewest`, by pricing everything. Tests compare `fewest` with it."""
    everything = np.arange(len(context.families))
    evaluated = 0
    for gpus in allowed:
        rows = rows_at(context, int(gpus), everything)
        evaluated += len(rows)
        index = best(rows, meets(rows, context.request))
        if index is not None:
            return SearchResult(row=rows.take(np.asarray([index])), at_count=rows, evaluated=evaluated)
    return None


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
            index = best(at_count, accepted(at_count))
            row = at_count.take(np.asarray([index]))
            return SearchResult(
                row=row, at_count=at_count, evaluated=evaluated, fewer_gpus=fewer_gpus
            ), evaluated
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


def thin(allowed: Array, points: int) -> Array:
    """About `points` counts at even ratios. Both ends and all powers of two are kept."""
    if allowed.size <= points:
        return allowed
    wanted = np.geomspace(allowed[0], allowed[-1], points)
    powers = 2.0 ** np.arange(np.log2(allowed[-1]) + 1)
    nearest = np.searchsorted(allowed, np.concatenate([wanted, powers]))
    return distinct(allowed[np.minimum(nearest, allowed.size - 1)])


def fitting(context: SearchContext, most: int) -> tuple[Array, float]:
    """The families that fit memory on `most` GPUs or fewer, and the fewest bytes that any family needs."""
    cache = context.tables.fitting
    if most not in cache:
        cache[most] = _fitting(context, most)
    return cache[most]


def _fitting(context: SearchContext, most: int) -> tuple[Array, float]:
    """Families whose states alone exceed memory are checked only if no other fits, to report the minimum."""
    dp = _at_least_required_dp(context.families, np.maximum(most // context.families.unit, 1))
    possible = np.flatnonzero(dp * context.families.unit <= most)
    room = context.cluster.gpu.memory_bytes * (_CALIBRATED_FACTOR if context.request.calibration else 1.0)
    light = possible[context.tables.states_bytes()[possible] <= room]
    light_result = _fitting_among(context, light, dp[light], most)
    if light_result[0].size or light.size == possible.size:
        return light_result
    return _fitting_among(context, possible, dp[possible], most)


def _fitting_among(context: SearchContext, possible: Array, dp: Array, most: int) -> tuple[Array, float]:
    """Which families fit with `dp` replicas, or with the fewest replicas."""
    units = context.families.unit[possible]
    fits, used = _fit_on(context, possible, dp * units)
    alone = ~fits & (units < most)  # fewer replicas need fewer communicators; nothing else shrinks
    if fits.any():
        alone &= used <= _NEVER_FITS_FACTOR * context.cluster.gpu.memory_bytes
    if alone.any():
        few = possible[alone]
        fewest = _at_least_required_dp(context.families.take(few), np.ones_like(few)) * units[alone]
        fits[alone], least = _fit_on(context, few, fewest)
        used[alone] = np.minimum(used[alone], least)
    fits = fits | _measured(context, possible)
    return possible[fits], float(used.min(initial=np.inf))


def _fit_on(context: SearchContext, family: Array, gpus: Array) -> tuple[Array, Array]:
    """Which families fit memory on these GPUs at any batch size, and their device bytes."""
    columns, _ = layouts(context.families.take(family), gpus, context.request.workload, batch_tolerance=1.0)
    fits, used = fit_layouts(context, family, columns)
    return fits.copy(), np.array(used)


def _configuration_spread(context: SearchContext, columns: Columns) -> float:
    """The largest ratio of a measured configuration's correction to its family's."""
    calibration = context.request.calibration
    if not calibration:
        return 1.0
    return configuration_slack(
        calibration, context.nouns, float(step_sigma(context.cases(columns)).max()), context.confidence_z
    )


def _measured(context: SearchContext, chosen: Array) -> Array:
    """Families in which this job was measured: a correction at one size hardly holds at another size."""
    measured = np.zeros(chosen.size, dtype=bool)
    axes = {name: axis[chosen] for name, axis in context.families.axes.items() if name in _DEGREES}
    for layout in measured_layouts(context.request.calibration, context.nouns):
        same = [axis == getattr(layout, name) for name, axis in axes.items()]
        measured |= np.all(same, axis=0)
    return measured


def _at_least_required_dp(families: Families, dp: Array) -> Array:
    """`dp`, raised to the minimum for expert parallelism and shard groups."""
    axes = families.axes
    experts = -(-axes["ep"] // (axes["cp"] * axes["tp"]))
    groups = np.where(axes["sharding"] == Sharding.HSDP, 2 * axes["shard_group"] // axes["cp"], 1)
    return np.asarray(np.maximum(dp, np.maximum(experts, groups)))


def _most_by_family(context: SearchContext, feasible: Array) -> Array:
    """The most GPUs of each family: on more, a step of one micro-batch exceeds the global batch."""
    request, families = context.request, context.families.take(feasible)
    batch = request.workload.global_batch_sequences * (1 + request.batch_tolerance) + 1e-6
    return np.asarray(families.unit * np.floor(batch / families.axes["micro_batch"]))


def pairs(unit: Array, need: Array, block: Array) -> tuple[Array, Array]:
    """Indices into `unit` and counts of `block`, for each pair where unit divides count and count >= need."""
    units = distinct(unit)  # few distinct values; integer division is slow
    place = np.zeros(int(units.max(initial=0)) + 1, dtype=np.int64)
    place[units] = np.arange(units.size)
    divides = (block[:, None] % units == 0)[:, place[unit]] & (block[:, None] >= need)
    count, family = np.nonzero(divides)
    return family, block[count]


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
    dp = _at_least_required_dp(
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
    need = rows.gpus * rows.due_s / request.deadline_s / (1 + RATE_SLACK)
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
