"""How far predictions are from the truth: standard deviations of ln(true / predicted), by what is known."""

from statistics import NormalDist

import numpy as np

from rightsizer.cases import Cases
from rightsizer.columns import Array

__all__ = ["memory_sigma", "step_sigma", "z_quantile"]


def z_quantile(probability: float) -> float:
    """The standard normal quantile."""
    return NormalDist().inv_cdf(probability)


def step_sigma(cases: Cases) -> Array:
    """Standard deviation of ln(true / predicted step time)."""
    return np.asarray(np.where(cases.framework.known, 0.12, 0.2), dtype=float)


def memory_sigma(cases: Cases) -> Array:
    """Standard deviation of ln(true / predicted peak memory)."""
    return np.asarray(np.where(cases.framework.known, 0.07, 0.15), dtype=float)
