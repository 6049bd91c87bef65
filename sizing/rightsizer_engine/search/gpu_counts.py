"""GPU counts of a search: whole nodes and their divisors, thinned out, and paired with families."""

import numpy as np

from rightsizer_engine.domain.columns import Array, distinct
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.types import Request


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


def thin(allowed: Array, points: int) -> Array:
    """About `points` counts at even ratios. Both ends and all powers of two are kept."""
    if allowed.size <= points:
        return allowed
    wanted = np.geomspace(allowed[0], allowed[-1], points)
    powers = 2.0 ** np.arange(np.log2(allowed[-1]) + 1)
    nearest = np.searchsorted(allowed, np.concatenate([wanted, powers]))
    return distinct(allowed[np.minimum(nearest, allowed.size - 1)])


def pairs(unit: Array, need: Array, block: Array) -> tuple[Array, Array]:
    """Indices into `unit` and counts of `block`, for each pair where unit divides count and count >= need."""
    units = distinct(unit)  # few distinct values; integer division is slow
    place = np.zeros(int(units.max(initial=0)) + 1, dtype=np.int64)
    place[units] = np.arange(units.size)
    divides = (block[:, None] % units == 0)[:, place[unit]] & (block[:, None] >= need)
    count, family = np.nonzero(divides)
    return family, block[count]


def all_pairs(context: SearchContext, families: Array, counts: Array) -> tuple[Array, Array]:
    """(families, counts): every pair of these in which the replica's GPUs divide the count."""
    chosen, gpus = pairs(context.families.unit[families], np.zeros(families.shape), counts)
    return families[chosen], gpus
