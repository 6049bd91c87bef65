"""Correct predictions by measured runs: a shift of the logarithm, and a narrower interval.

The correction of a case is the conditional mean of its residual given all measured runs (evidence.py), its
variance the conditional variance (regression.py). So a run of another family counts partly, a few noisy steps
have little effect, and without evidence nothing changes.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.estimate.evidence import (
    CONFIGURATION,
    Calibration,
    LayoutFamily,
    Quantity,
    configuration_of,
    layout_family,
)
from rightsizer_engine.estimate.parameters import Parameters, load_calibration
from rightsizer_engine.estimate.regression import Regression, Target, job_of, regression_of, target_of
from rightsizer_engine.values import immutable


@immutable
class Correction:
    """Factors for predictions and for sigma. Shape () or (n,)."""

    factor: Array
    sigma_factor: Array


_NONE = Correction(factor=np.asarray(1.0), sigma_factor=np.asarray(1.0))


def correct(
    calibration: Calibration | None,
    cases: Cases,
    sigma: Array,
    quantity: Quantity,
    parameters: Parameters | None = None,
) -> Correction:
    """The corrections of cases whose standard deviations of ln(true / predicted) are `sigma`."""
    evidence = calibration.evidence if calibration else ()
    regression = regression_of(evidence, quantity, parameters or load_calibration())
    if not regression.evidence:
        return _NONE
    family, nouns = layout_family(cases.layout), _job_columns(cases)
    if all(noun.ndim == 0 for noun in nouns):
        job = tuple(noun.item() for noun in nouns)
        mean, variance = _of_families(regression, family, (*job, float(np.max(sigma))), cases.layout)
    else:
        mean, variance = _of_rows(regression, family, (*nouns, sigma), cases.layout)
    return Correction(factor=np.exp(mean * sigma), sigma_factor=np.sqrt(variance))


def configuration_slack(calibration: Calibration | None, cases: Cases, sigma: float, z: float) -> float:
    """The largest ratio between a measured configuration and the rest of its family, at least 1.

    A search that bounds all sizes of a family by one size must allow for it. Step times are compared at z
    standard deviations; `sigma` is the engine's largest. The columns of `cases` have shape ().
    """
    if not calibration:
        return 1.0
    regression = regression_of(calibration.evidence, Quantity.STEP, load_calibration())
    nouns = (*(noun.item() for noun in _job_columns(cases)), sigma)
    levels: dict[int, list[float]] = {}
    for target in _configurations(regression, nouns):
        for compared in (target, target_of(nouns, target.family)):
            mean, variance = regression.posterior(compared)
            levels.setdefault(target.family, []).append(sigma * (mean + z * variance**0.5))
    return float(np.exp(max((max(v) - min(v) for v in levels.values()), default=0.0)))


def measured_layouts(calibration: Calibration | None, cases: Cases) -> tuple[Layout, ...]:
    """The layouts in which this job was measured."""
    if not calibration:
        return ()
    nouns = tuple(noun.item() for noun in _job_columns(cases))
    layouts = {e.layout for e in calibration.evidence if nouns == job_of(e)}
    return tuple(sorted(layouts, key=configuration_of))


def _job_columns(cases: Cases) -> tuple[Array, Array, Array, Array]:
    return (cases.framework.name, cases.gpu.name, cases.architecture.name, cases.workload.sequence_tokens)


def _of_families(
    regression: "Regression", family: Array, nouns: tuple[Any, ...], layout: Columns
) -> tuple[Array, Array]:
    """Mean and variance for many layouts of one job: by family, then for measured configurations.

    `nouns` end with the engine's deviation, which is the same for all layouts.
    """
    table = np.asarray([regression.posterior(target_of(nouns, code)) for code in LayoutFamily])
    mean, variance = table[family, 0], table[family, 1]
    for target in _configurations(regression, nouns):
        rows = _rows_like(target, layout, np.shape(mean))
        if rows.size:
            flat_mean, flat_variance = np.atleast_1d(mean), np.atleast_1d(variance)
            flat_mean[rows], flat_variance[rows] = regression.posterior(target)
            mean, variance = flat_mean.reshape(np.shape(mean)), flat_variance.reshape(np.shape(mean))
    return mean, variance


def _of_rows(
    regression: "Regression", family: Array, nouns: tuple[Array, ...], layout: Columns
) -> tuple[Array, Array]:
    """Mean and variance of different jobs, row by row."""
    columns = np.broadcast_arrays(family, *nouns)
    same = np.broadcast_arrays(*(getattr(layout, name) for name in CONFIGURATION), columns[0])[:-1]
    posteriors = []
    for index in range(columns[0].size):
        key = tuple(column.reshape(-1)[index].item() for column in columns)
        like = tuple(int(column.reshape(-1)[index]) for column in same)
        target = next(
            (t for t in _configurations(regression, key[1:]) if configuration_of(t.layout) == like), None
        )
        posteriors.append(regression.posterior(target or target_of(key[1:], key[0])))
    table = np.asarray(posteriors).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _configurations(regression: "Regression", nouns: tuple[Any, ...]) -> Iterator[Target]:
    """The measured configurations of this job."""
    layouts = set()
    for run, target in zip(regression.evidence, regression.targets, strict=True):
        if job_of(run) == nouns[:4] and run.layout not in layouts:
            layouts.add(run.layout)
            yield replace(target, sigma=nouns[4])


def _rows_like(target: Target, layout: Columns, shape: tuple[int, ...]) -> Array:
    """Indices of the rows that are this configuration."""
    rows = np.arange(int(np.prod(shape)))
    for name, value in zip(CONFIGURATION, configuration_of(target.layout), strict=True):
        column = getattr(layout, name)
        equal = column == value if column.ndim == 0 else column[rows] == value
        rows = rows[np.broadcast_to(equal, rows.shape)]
        if not rows.size:
            break
    return rows
