"""Price layouts: families on a number of GPUs become rows with step time, finish and cost."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from rightsizer_engine.domain.architecture import Architecture, parameters_total
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Array, Columns, distinct
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.estimate import cost, goodput
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.estimate.uncertainty import quantile
from rightsizer_engine.search.family_tables import ClusterTables, StageTables, StepRates
from rightsizer_engine.search.layout_space import Families, domain_gpus, families_within, layouts
from rightsizer_engine.search.types import Request
from rightsizer_engine.values import immutable

CHECKPOINT_BYTES_PER_PARAMETER = 14.0
"""Mixed-precision Adam: 2 (weights) + 4 (master) + 8 (moments); BLOOM-176B measured 13.05."""

ADAPTER_SHARE = 0.01
"""Adapter parameters over all parameters: a generous guess for ranks up to a few hundred."""

READ_BYTES_PER_PARAMETER = 2.0
"""Weights that a fine-tuning reads are stored in 16 bits, also where they are quantised when loaded."""

_KEPT_ROWS = 4096
"""Larger batches of rows are not cached. They occur only on thousands of GPUs."""


@immutable
class SearchContext:
    """Shared values of one cluster's rows: the request as columns, the families and their tables."""

    request: Request
    cluster: Cluster
    nouns: Cases
    families: Families
    tables: ClusterTables
    confidence_z: float
    checkpoint_bytes: float
    read_bytes: float

    def cases(self, columns: Columns) -> Cases:
        """The request's columns with these layouts."""
        return replace(self.nouns, layout=columns)

    @property
    def reliability(self) -> goodput.Reliability:
        """The request's reliability, with the start-up and the write rate measured on this stack."""
        request = self.request
        if not request.calibration:
            return request.reliability
        stack = (request.framework.name, self.cluster.gpu.name)
        runs = [e for e in request.calibration.evidence if (e.framework, e.gpu) == stack]
        return goodput.measured(
            request.reliability,
            start_s=[e.start_s for e in runs],
            write_bytes_per_s=[e.checkpoint_bytes_per_s_per_node for e in runs],
        )


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


def search_context(request: Request, cluster: Cluster) -> SearchContext:
    """The context of a search over all families on one cluster.

    Step time and memory of a family depend neither on tokens and deadline nor on the GPUs available. Their
    tables are cached for the next request with the same model and GPU type.
    """
    families, tables = _cluster_tables(
        request.architecture,
        replace(request.workload, tokens=1.0),
        replace(cluster, max_gpus=1, price_usd_per_gpu_h=None),
        request.framework,
        tuple(sorted(request.pinned.items())),
        request.calibration,
    )
    return _make_context(request, cluster, families, tables)


@lru_cache(maxsize=16)
def _cluster_tables(  # noqa: PLR0917 -- a key: all that the tables depend on
    architecture: Architecture,
    workload: Workload,
    cluster: Cluster,
    framework: Framework,
    pinned: tuple[tuple[str, int], ...],
    calibration: Calibration | None,
) -> tuple[Families, ClusterTables]:
    """The families and their lazily filled tables. Thread-safe."""
    nouns = _nouns(architecture, workload, cluster, framework)
    families, stages = _shared_tables(architecture, workload, domain_gpus(cluster), framework, pinned)
    return families, ClusterTables(nouns, stages, calibration)


@lru_cache(maxsize=8)
def _shared_tables(
    architecture: Architecture,
    workload: Workload,
    domain: int,
    framework: Framework,
    pinned: tuple[tuple[str, int], ...],
) -> tuple[Families, StageTables]:
    """Families and stage tables, shared by all GPU types with the same domain size."""
    families = families_within(domain, architecture, workload, framework, pinned=dict(pinned))
    return families, StageTables(_nouns(architecture, workload, None, framework), families.axes)


def families_context(request: Request, cluster: Cluster, families: Families) -> SearchContext:
    """The context for pricing given families on one cluster, without shared tables."""
    nouns = _nouns(request.architecture, request.workload, cluster, request.framework)
    return _make_context(
        request,
        cluster,
        families,
        ClusterTables(nouns, StageTables(nouns, families.axes), request.calibration),
    )


def _nouns(
    architecture: Architecture, workload: Workload, cluster: Cluster | None, framework: Framework
) -> Cases:
    return Cases(
        architecture=_columns(architecture),
        workload=_columns(workload),
        cluster=_columns(cluster) if cluster else Columns({}),
        gpu=_columns(cluster.gpu) if cluster else Columns({}),
        framework=_columns(framework),
        layout=Columns({}),
    )


def _make_context(
    request: Request, cluster: Cluster, families: Families, tables: ClusterTables
) -> SearchContext:
    return SearchContext(
        request=request,
        cluster=cluster,
        nouns=_nouns(request.architecture, request.workload, cluster, request.framework),
        families=families,
        tables=tables,
        confidence_z=quantile(request.confidence),
        checkpoint_bytes=checkpoint_bytes(request),
        read_bytes=read_bytes(request),
    )


@lru_cache(maxsize=64)
def _columns(noun: Any) -> Columns:
    """Cached columns of a noun with their derived values, shared by the GPU types of one request."""
    return Columns.of(noun)


def checkpoint_bytes(job: Request | Case) -> float:
    """Bytes of a checkpoint: weights, master weights and moments; adapters only if the base is frozen."""
    parameters = float(parameters_total(job.architecture))
    if job.workload.method in (Method.LORA, Method.QLORA):
        parameters *= ADAPTER_SHARE
    return parameters * CHECKPOINT_BYTES_PER_PARAMETER


def read_bytes(request: Request) -> float:
    """Bytes of weights that training starts from; pretraining starts from none."""
    if request.workload.method is Method.PRETRAIN:
        return 0.0
    return float(parameters_total(request.architecture)) * READ_BYTES_PER_PARAMETER


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
