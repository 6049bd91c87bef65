"""Price layouts: families on a number of GPUs become rows with step time, finish and cost."""

from collections.abc import Sequence
from dataclasses import fields, replace
from hashlib import blake2b

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns, distinct
from rightsizer_engine.domain.workload import Method, Precision
from rightsizer_engine.estimate import cost, goodput
from rightsizer_engine.search.pricing.context import SearchContext
from rightsizer_engine.search.pricing.family_tables import StepRates
from rightsizer_engine.search.pricing.layout_space import layouts
from rightsizer_engine.values import immutable

_KEPT_ROWS = 4096
"""Larger batches of rows are not cached. They occur only on thousands of GPUs."""


@immutable
class Rows:
    """n priced rows, arrays of shape (n,). `family` indexes the context's families. NaN USD: no price.

    `due_s` is what the deadline is compared with: the median of an elastic job, which grows if it must, else
    the finish at the request's confidence.
    """

    family: Array
    gpus: Array
    layout: Columns
    sigma: Array
    unplanned: Array
    stragglers: Array
    slower_stack: Array
    finish_sigma: Array
    once_s: Array
    finish_s: Array
    finish_at_confidence_s: Array
    due_s: Array
    cost_usd: Array

    def __len__(self) -> int:
        return int(self.gpus.size)

    def take(self, index: Array) -> "Rows":
        """The rows at `index`."""
        changed = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "layout"}
        return Rows(layout=self.layout.take(index), **changed)

    def row(self, index: int) -> "Rows":
        """One row, of shape (1,)."""
        return self.take(np.asarray([index]))


def price_pairs(context: SearchContext, family: Array, gpus: Array) -> Rows:
    """Price the (family, gpus) pairs that are legal, fit memory and recompute no more than necessary.

    Step rates are cached: the next request for the model with another deadline needs the same ones.
    """
    key = blake2b(b"".join(column.tobytes() for column in (family, gpus)), digest_size=16).digest()
    cache = context.tables.step_rates_cache(key, context.request.batch_tolerance)
    if "found" not in cache:
        family, gpus, columns = fitting_pairs(context, family, gpus)
        priced = (family, gpus, columns, context.tables.throughput(family, columns))
        if gpus.size > _KEPT_ROWS:
            return _rows(context, *priced)
        cache["found"] = priced
    return _rows(context, *cache["found"])


def fitting_pairs(context: SearchContext, family: Array, gpus: Array) -> tuple[Array, Array, Columns]:
    """The pairs that are legal, fit memory and recompute no more than necessary."""
    request = context.request
    columns, legal = layouts(
        context.families.take(family), gpus, request.workload, batch_tolerance=request.batch_tolerance
    )
    for name, value in request.pinned.items():
        legal &= getattr(columns, name) == value
    chosen = np.flatnonzero(legal)
    columns, family, gpus = columns.take(chosen), family[chosen], gpus[chosen]
    fits = np.flatnonzero(fit_layouts(context, family, columns)[0])
    fits = fits[_least_recompute(context.families.sibling[family[fits]], gpus[fits])]
    return family[fits], gpus[fits], columns.take(fits)


def _least_recompute(sibling: Array, gpus: Array) -> Array:
    """The first of adjacent siblings on the same GPUs: unnecessary recompute only costs time."""
    first = np.ones(sibling.size, dtype=bool)
    first[1:] = (sibling[1:] != sibling[:-1]) | (gpus[1:] != gpus[:-1])
    return np.flatnonzero(first)


def fit_layouts(context: SearchContext, family: Array, columns: Columns) -> tuple[Array, Array]:
    """Which layouts of these families fit memory, and their device bytes."""
    memory_fits = context.tables.fit(family, columns)
    return memory_fits.fits, memory_fits.device_bytes


def price(context: SearchContext, family: Array, gpus: Array, columns: Columns) -> Rows:
    """Price layouts without checking memory."""
    return _rows(context, family, gpus, columns, context.tables.throughput(family, columns))


def _rows(context: SearchContext, family: Array, gpus: Array, columns: Columns, rates: StepRates) -> Rows:
    request, sigma = context.request, rates.sigma
    steps = np.ceil(request.workload.tokens / np.maximum(rates.tokens_per_step, 1.0))
    productive = _productive(context, gpus)
    planned_s = steps * rates.step_s / productive
    beyond = _beyond_plan(context, gpus, planned_s, productive)
    once_s = goodput.once_s(
        gpus,
        read_bytes=context.read_bytes,
        checkpoint_bytes=context.checkpoint_bytes,
        reliability=context.reliability,
    )
    finish_s = planned_s / (1.0 - beyond.lost) + once_s
    finish_sigma = np.hypot(np.hypot(sigma, beyond.sigma_ln), goodput.stays_ln())
    at_confidence_s = finish_s * np.exp(context.confidence_z * finish_sigma)
    price_usd = cost.price_usd_per_gpu_h(context.cluster)
    spare_gpus = (request.spare_nodes or 0) * context.cluster.gpus_per_node
    usd = np.full(gpus.shape, np.nan)
    if price_usd is not None:
        usd = np.asarray(cost.usd(gpus + spare_gpus, finish_s, price_usd))
    return Rows(
        family=family,
        gpus=gpus,
        layout=columns,
        sigma=sigma,
        unplanned=beyond.unplanned,
        stragglers=beyond.stragglers,
        slower_stack=beyond.slower_stack,
        finish_sigma=finish_sigma,
        once_s=once_s,
        finish_s=finish_s,
        finish_at_confidence_s=at_confidence_s,
        due_s=finish_s if request.elastic else at_confidence_s,
        cost_usd=usd,
    )


def _beyond_plan(
    context: SearchContext, gpus: Array, planned_s: Array, productive: Array
) -> goodput.WholeRun:
    """Losses and scatter of whole runs beyond the plan. Known for pretraining only."""
    request = context.request
    if request.workload.method is not Method.PRETRAIN:
        none = np.zeros(gpus.shape)
        return goodput.WholeRun(
            unplanned=none, stragglers=none, slower_stack=none, sigma_ln=none, weight=none
        )
    beyond = goodput.whole_run(
        gpus,
        planned_s,
        productive,
        assumed=request.framework_assumed,
        slower_stack_ln=_slower_stack_ln(context),
    )
    # steps measured on several nodes already include waiting for stragglers
    if _steps_measured(context, more_than=context.cluster.gpus_per_node):
        beyond = replace(beyond, stragglers=np.zeros(gpus.shape))
    # what whole runs scatter beyond published steps are the steps of their stack: measured here
    return replace(beyond, sigma_ln=np.zeros(gpus.shape)) if _steps_measured(context, more_than=0) else beyond


def _slower_stack_ln(context: SearchContext) -> float:
    """The slowdown of a typical stack over the assumed one; 0 if one is named or measured, or in 8 bits."""
    request = context.request
    sixteen = request.workload.precision in (Precision.BF16, Precision.FP16)
    if not (request.framework_assumed and sixteen) or _steps_measured(context, more_than=0):
        return 0.0
    return goodput.slower_stack_ln(request.workload.library_year)


def _steps_measured(context: SearchContext, *, more_than: int) -> bool:
    """Whether measured runs on more than `more_than` GPUs correct the step time."""
    request, cluster = context.request, context.cluster
    return request.calibration is not None and any(
        e.step is not None
        and (e.framework, e.gpu) == (request.framework.name, cluster.gpu.name)
        and e.layout.gpus > more_than
        for e in request.calibration.evidence
    )


def _productive(context: SearchContext, gpus: Array) -> Array:
    """The productive share of wall time, computed once per distinct GPU count."""
    counts = distinct(gpus)
    estimate = goodput.estimate(counts, np.asarray(context.checkpoint_bytes), context.reliability)
    table = np.zeros(int(counts.max(initial=0)) + 1)
    table[counts] = estimate.productive
    return np.asarray(table[gpus])


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate rows. Layout columns of shape () keep their shape."""
    first = parts[0].layout
    columns = {
        name: getattr(first, name)
        if getattr(first, name).ndim == 0
        else np.concatenate([getattr(p.layout, name) for p in parts])
        for name in first.names()
    }
    arrays = {
        f.name: np.concatenate([getattr(p, f.name) for p in parts])
        for f in fields(Rows)
        if f.name != "layout"
    }
    return Rows(layout=Columns(columns), **arrays)
