"""Uncertainty of predictions: standard deviations of ln(true / predicted), by features of the case.

A standard deviation is exp(intercept + sum of coefficients of the features that hold), fitted so that the
central 80 % interval of a normal distribution of that width holds 80 % of the published runs whose whole
source was left out of the fit. Runs were also predicted with their framework withheld, which gives the
coefficient of `unknown_framework`.
"""

import json
from collections.abc import Mapping
from functools import cache
from statistics import NormalDist
from typing import Any

import numpy as np

from rightsizer import packaged
from rightsizer.domain.cases import Cases
from rightsizer.domain.columns import Array
from rightsizer.domain.workload import Method, Precision

__all__ = [
    "WIDE",
    "coefficients",
    "features",
    "memory_sigma",
    "probability_within",
    "quantile",
    "sigma",
    "step_sigma",
    "wider",
    "z_quantile",
]

FITTED_CAPABILITIES = (8.0, 9.0, 10.0)
"""GPU generations (compute capability) that the reference tables hold many training runs of.

A100, H100, B200.
"""


WIDE = 1.7
"""A finish is as likely to scatter by WIDE times its deviation as by the deviation itself.

Deviations fitted to known sources were too small by 1.57 to 2.1 on sources that nobody had seen
(published_runs_wave2.csv). Tails are therefore those of an even mixture of two normal distributions.
"""

_NORMAL = NormalDist()


def z_quantile(probability: float) -> float:
    """The standard normal quantile."""
    return _NORMAL.inv_cdf(probability)


def probability_within(z: float) -> float:
    """The probability that ln(true / predicted) of a finish is at most z deviations."""
    return 0.5 * (_NORMAL.cdf(z) + _NORMAL.cdf(z / WIDE))


@cache
def quantile(probability: float) -> float:
    """The inverse of `probability_within`: deviations of ln(true / predicted finish)."""
    below, above = sorted((z_quantile(probability), WIDE * z_quantile(probability)))
    for _ in range(60):
        middle = 0.5 * (below + above)
        below, above = (middle, above) if probability_within(middle) < probability else (below, middle)
    return 0.5 * (below + above)


def step_sigma(cases: Cases) -> Array:
    """Standard deviation of ln(true / predicted step time)."""
    return sigma(cases, coefficients("step_time")) * wider(cases, "step_time")


def memory_sigma(cases: Cases) -> Array:
    """Standard deviation of ln(true / predicted peak memory)."""
    return sigma(cases, coefficients("memory")) * wider(cases, "memory")


def wider(cases: Cases, quantity: str) -> Array:
    """How many times wider an interval is because inputs were assumed, not stated."""
    factors = _document()["assumed"][quantity]
    inputs = np.where(cases.workload.assumed_inputs, factors["inputs"], 1.0)
    return np.asarray(inputs * np.where(cases.workload.assumed_dimensions, factors["dimensions"], 1.0))


def sigma(cases: Cases, terms: Mapping[str, float]) -> Array:
    """exp(intercept + the coefficients of the features that hold)."""
    present = features(cases)
    total = sum((terms.get(name, 0.0) * value for name, value in present.items()), np.zeros(()))
    return np.asarray(np.exp(terms["intercept"] + total))


def features(cases: Cases) -> dict[str, Array]:
    """Features that widen or narrow the interval: 1.0 if present.

    They belong to the question (model, method, hardware, what is stated), never to the layout chosen: a
    search would otherwise prefer layouts that are merely better known.
    """
    layout, workload, gpu = cases.layout, cases.workload, cases.gpu
    gpus = layout.dp * layout.tp * layout.pp * layout.cp
    nodes = gpus > cases.cluster.gpus_per_node
    eight = (workload.precision == Precision.FP8) | (workload.precision == Precision.NVFP4)
    adapters = (workload.method == Method.LORA) | (workload.method == Method.QLORA)
    generation = gpu.compute_capability
    fitted = (generation == FITTED_CAPABILITIES[0]) | (generation == FITTED_CAPABILITIES[1])
    fitted = fitted | (generation == FITTED_CAPABILITIES[2])
    trainer = (cases.framework.family == "trainer") | (cases.framework.family == "deepspeed")
    holds = {
        "unknown_framework": ~np.asarray(cases.framework.known, dtype=bool),
        "trainer": trainer,
        "many_nodes": nodes,
        "link_not_stated": nodes & ~np.asarray(cases.cluster.inter_known, dtype=bool),
        "experts": cases.architecture.experts > 0,
        "adapters": adapters,
        "eight_bit": eight,
        "other_hardware": ~fitted,
    }
    return {name: np.asarray(value, dtype=float) for name, value in holds.items()}


@cache
def coefficients(quantity: str) -> Mapping[str, float]:
    """The fitted intercept and coefficients for "step_time" or "memory"."""
    terms: Mapping[str, float] = _document()[quantity]["coefficients"]
    return terms


@cache
def _document() -> Any:
    return json.loads(packaged.text("uncertainty.json"))
