"""Cases: nouns joined with layouts as columns; what every estimate reads."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.values import immutable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Estimate = TypeVar("Estimate", bound="DataclassInstance")

_WORTH_IT = 64
"""Fewer rows than this are priced as they are."""


@immutable
class Case:
    """One (architecture, workload, cluster, framework, layout); `assumptions`: what its source left out."""

    architecture: Architecture
    workload: Workload
    cluster: Cluster
    framework: Framework
    layout: Layout
    assumptions: tuple[str, ...] = ()


@immutable
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

    def distinct(self, keys: Sequence[Array]) -> tuple["Cases", Array | None]:
        """One case for each distinct combination of whole numbers in `keys`, and where each row went.

        Only where all but the layout is shared; else the cases themselves and None.
        """
        nouns = (self.architecture, self.workload, self.cluster, self.gpu, self.framework)
        rows = max((key.size for key in keys), default=1)
        if rows < _WORTH_IT or any(getattr(noun, name).ndim for noun in nouns for name in noun.names()):
            return self, None
        code = np.zeros(rows, dtype=np.int64)
        for key in keys:
            code = code * (int(key.max()) + 1) + key
        _, first, back = np.unique(code, return_index=True, return_inverse=True)
        return replace(self, layout=self.layout.take(first)), back


def gather_rows(estimate: Estimate, back: Array | None) -> Estimate:
    """An estimate of distinct cases, spread over the rows they stand for (arrays by their last axis).

    What is nested deeper than tuples stays as it is.
    """
    if back is None:
        return estimate
    spread = {f.name: _spread(getattr(estimate, f.name), back) for f in fields(estimate)}
    return replace(estimate, **spread)


def _spread(value: Any, back: Array) -> Any:
    if isinstance(value, tuple):
        return tuple(_spread(part, back) for part in value)
    if isinstance(value, np.ndarray) and value.ndim:
        return value[..., back]
    return value
