"""Which families fit memory on some allowed GPU count.

A family that does not fit when sharded over the most GPUs allowed never fits.
"""

from dataclasses import fields

import numpy as np

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.correction import measured_layouts
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.pricing.layout_space import Families, layouts
from rightsizer_engine.search.pricing.rows import fit_layouts

_NEVER_FITS_FACTOR = 1.5
"""A family that takes this multiple of GPU memory with many replicas does not fit with one replica either.

One replica saves communicator buffers, and a micro-batch in some interleaved stages: far less than a half.
"""


_CALIBRATED_FACTOR = 2.0
"""With calibration, families that take up to this multiple of GPU memory are still considered."""


_DEGREES = {f.name for f in fields(Layout)}


def fitting(context: SearchContext, most: int) -> tuple[Array, float]:
    """The families that fit memory on `most` GPUs or fewer, and the fewest bytes that any family needs."""
    cache = context.tables.fitting
    if most not in cache:
        cache[most] = _fitting(context, most)
    return cache[most]


def _fitting(context: SearchContext, most: int) -> tuple[Array, float]:
    """Families whose states alone exceed memory are checked only if no other fits, to report the minimum."""
    dp = at_least_required_dp(context.families, np.maximum(most // context.families.unit, 1))
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
        fewest = at_least_required_dp(context.families.take(few), np.ones_like(few)) * units[alone]
        fits[alone], least = _fit_on(context, few, fewest)
        used[alone] = np.minimum(used[alone], least)
    fits = fits | _measured(context, possible)
    return possible[fits], float(used.min(initial=np.inf))


def _fit_on(context: SearchContext, family: Array, gpus: Array) -> tuple[Array, Array]:
    """Which families fit memory on these GPUs at any batch size, and their device bytes."""
    columns, _ = layouts(context.families.take(family), gpus, context.request.workload, batch_tolerance=1.0)
    fits, used = fit_layouts(context, family, columns)
    return fits.copy(), np.array(used)


def _measured(context: SearchContext, chosen: Array) -> Array:
    """Families in which this job was measured: a correction at one size hardly holds at another size."""
    measured = np.zeros(chosen.size, dtype=bool)
    axes = {name: axis[chosen] for name, axis in context.families.axes.items() if name in _DEGREES}
    for layout in measured_layouts(context.request.calibration, context.nouns):
        same = [axis == getattr(layout, name) for name, axis in axes.items()]
        measured |= np.all(same, axis=0)
    return measured


def at_least_required_dp(families: Families, dp: Array) -> Array:
    """`dp`, raised to the minimum for expert parallelism and shard groups."""
    axes = families.axes
    experts = -(-axes["ep"] // (axes["cp"] * axes["tp"]))
    groups = np.where(axes["sharding"] == Sharding.HSDP, 2 * axes["shard_group"] // axes["cp"], 1)
    return np.asarray(np.maximum(dp, np.maximum(experts, groups)))
