"""Cases: nouns joined with layouts as columns; what every estimate reads."""

from collections.abc import Iterable
from dataclasses import dataclass

from rightsizer.architecture import Architecture
from rightsizer.columns import Columns
from rightsizer.framework import Framework
from rightsizer.hardware import Cluster
from rightsizer.layout import Layout
from rightsizer.workload import Workload

__all__ = ["Case", "Cases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One (architecture, workload, cluster, framework, layout)."""

    architecture: Architecture
    workload: Workload
    cluster: Cluster
    framework: Framework
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """n cases as columns: shape () where all share a value, (n,) elsewhere; all broadcast."""

    architecture: Columns
    workload: Columns
    cluster: Columns
    gpu: Columns
    framework: Columns
    layout: Columns

    @classmethod
    def of(cls, case: Case, *, layouts: Columns | None = None) -> "Cases":
        """The columns of one case, or of one case under many layouts."""
        return cls(
            architecture=Columns.of(case.architecture),
            workload=Columns.of(case.workload),
            cluster=Columns.of(case.cluster),
            gpu=Columns.of(case.cluster.gpu),
            framework=Columns.of(case.framework),
            layout=Columns.of(case.layout) if layouts is None else layouts,
        )

    @classmethod
    def stack(cls, cases: Iterable[Case]) -> "Cases":
        """The columns of n different cases."""
        rows = list(cases)
        return cls(
            architecture=Columns.stack(c.architecture for c in rows),
            workload=Columns.stack(c.workload for c in rows),
            cluster=Columns.stack(c.cluster for c in rows),
            gpu=Columns.stack(c.cluster.gpu for c in rows),
            framework=Columns.stack(c.framework for c in rows),
            layout=Columns.stack(c.layout for c in rows),
        )
