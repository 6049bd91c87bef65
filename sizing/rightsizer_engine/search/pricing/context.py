"""Shared values of a search's rows: the request as columns, its families and their cached tables."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from rightsizer_engine.domain.architecture import Architecture, parameters_total
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.evidence import Calibration
from rightsizer_engine.estimate.uncertainty import quantile
from rightsizer_engine.search.pricing.family_tables import ClusterTables, StageTables
from rightsizer_engine.search.pricing.layout_space import Families, domain_gpus, families_within
from rightsizer_engine.search.types import Request
from rightsizer_engine.values import immutable

_CHECKPOINT_BYTES_PER_PARAMETER = 14.0
"""Mixed-precision Adam: 2 (weights) + 4 (master) + 8 (moments); BLOOM-176B measured 13.05."""


_ADAPTER_SHARE = 0.01
"""Adapter parameters over all parameters: a generous guess for ranks up to a few hundred."""


_READ_BYTES_PER_PARAMETER = 2.0
"""Weights that a fine-tuning reads are stored in 16 bits, also where they are quantised when loaded."""


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
        parameters *= _ADAPTER_SHARE
    return parameters * _CHECKPOINT_BYTES_PER_PARAMETER


def read_bytes(request: Request) -> float:
    """Bytes of weights that training starts from; pretraining starts from none."""
    if request.workload.method is Method.PRETRAIN:
        return 0.0
    return float(parameters_total(request.architecture)) * _READ_BYTES_PER_PARAMETER
