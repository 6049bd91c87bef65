"""Uncertainty of predictions: the distribution of ln(true / predicted), wider for what was never measured.

A deviation is that of two estimates joined, as their precisions (inverse variances) add:

    1 / sigma^2 = 1 / nothing_ln^2 + evidence / source_ln^2

`nothing_ln` is how far a constant utilisation errs, which needs no runs like the case; `source_ln` is how
far sources differ from the engine where one source's worth of runs like the case was measured
(`domain.familiarity`). Both are fitted to rows of sources that the engine had not seen
(`python -m bench.fit.uncertainty`). More measured runs never widen an interval. An input that is assumed, not
stated, adds a variance of its own (`assumed` in data/uncertainty.json).
"""

import json
from collections.abc import Mapping
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from rightsizer_engine import packaged
from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array
from rightsizer_engine.domain.familiarity import measured

WIDE = 1.7
"""A prediction is as likely to scatter by WIDE times its deviation as by the deviation itself.

Deviations fitted to known sources were too small by 1.57 to 2.1 on sources that nobody had seen
(published_runs_wave2.csv). Tails are therefore those of an even mixture of two normal distributions.
"""

_NORMAL = NormalDist()


def z_quantile(probability: float) -> float:
    """The standard normal quantile."""
    return _NORMAL.inv_cdf(probability)


def probability_within(z: float) -> float:
    """The probability that ln(true / predicted) is at most z deviations."""
    return 0.5 * (_NORMAL.cdf(z) + _NORMAL.cdf(z / WIDE))


@cache
def quantile(probability: float) -> float:
    """The inverse of `probability_within`: deviations of ln(true / predicted)."""
    below, above = sorted((z_quantile(probability), WIDE * z_quantile(probability)))
    for _ in range(60):
        middle = 0.5 * (below + above)
        below, above = (middle, above) if probability_within(middle) < probability else (below, middle)
    return 0.5 * (below + above)


Z_80 = quantile(0.9)
"""Half width of the central 80 %, in deviations."""


def step_sigma(cases: Cases) -> Array:
    """Deviation of ln(true / predicted step time)."""
    return _sigma(cases, "step_time")


def memory_sigma(cases: Cases) -> Array:
    """Deviation of ln(true / predicted peak memory)."""
    return _sigma(cases, "memory")


def _sigma(cases: Cases, quantity: str) -> Array:
    known = deviation(measured().evidence(cases, quantity), coefficients(quantity))
    gaps = _document()["assumed"][quantity]
    inputs = np.where(cases.workload.assumed_inputs, gaps["inputs_ln"], 0.0)
    dimensions = np.where(cases.workload.assumed_dimensions, gaps["dimensions_ln"], 0.0)
    return np.asarray(np.sqrt(known**2 + inputs**2 + dimensions**2))


def deviation(evidence: Array, terms: Mapping[str, float]) -> Array:
    """The deviation at so many sources' worth of measured runs."""
    return np.asarray((terms["nothing_ln"] ** -2 + evidence * terms["source_ln"] ** -2) ** -0.5)


def coefficients(quantity: str) -> Mapping[str, float]:
    """The fitted `nothing_ln` and `source_ln` of "step_time" or "memory"."""
    terms: Mapping[str, float] = _document()[quantity]["coefficients"]
    return terms


@cache
def _document() -> Any:
    return json.loads(packaged.text("uncertainty.json"))
