"""Robust Gauss-Newton for a model with priors, and the solution of each fold from one Jacobian.

Leaving one source of twenty out changes the answer little: one linearisation at the full fit, solved again
for each fold by reweighting, gives each fold's parameters in milliseconds. The held-out rows are then
predicted by the real model with those parameters, not by the linear one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from bench.fitting import SCALE, SPREAD, robust

from rightsizer_engine.domain.columns import Array
from rightsizer_engine.estimate.parameters import Parameter

IN_COMMON = 0.5
"""Share of the prior variance that parameters of one family (a term by class or generation) share."""
_DELTA = 0.01
_LARGEST_STEP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """A normal prior in ln(parameter): its mean and its precision (parameters, parameters)."""

    mean: Array
    precision: Array

    @classmethod
    def of(cls, entries: Sequence[Parameter], family: Callable[[str], str] = str) -> "Prior":
        """The priors of the entries; entries of one family share a part of their deviation."""
        sigma = np.asarray([entry.sigma_ln for entry in entries])
        kin = np.asarray([family(entry.name) for entry in entries])
        share = np.where(kin[:, None] == kin[None, :], IN_COMMON, 0.0)
        np.fill_diagonal(share, 1.0)
        mean = np.log([entry.prior for entry in entries])
        return cls(mean=mean, precision=np.linalg.inv(share * sigma[:, None] * sigma[None, :]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Residuals (rows,) and their Jacobian (rows, parameters) at a point."""

    point: Array
    residual: Array
    jacobian: Array


def linearise(residuals: Callable[[Array], Array], point: Array) -> Linear:
    """Forward differences in every parameter."""
    base = residuals(point)
    columns = []
    for index in range(point.size):
        moved = point.copy()
        moved[index] += _DELTA
        columns.append((residuals(moved) - base) / _DELTA)
    return Linear(point=point, residual=base, jacobian=np.stack(columns, axis=1))


def within(linear: Linear, weight: Array, prior: Prior, *, rounds: int = 15) -> Array:
    """The best point of the linear model under soft-L1, by reweighted least squares."""
    point = linear.point.copy()
    for _ in range(rounds):
        error = linear.residual + linear.jacobian @ (point - linear.point)
        row = weight / SPREAD**2 / np.sqrt(1 + (error / SCALE) ** 2)
        normal = (linear.jacobian * row[:, None]).T @ linear.jacobian + prior.precision
        slope = (linear.jacobian * row[:, None]).T @ error + prior.precision @ (point - prior.mean)
        point = point - np.clip(np.linalg.solve(normal, slope), -_LARGEST_STEP, _LARGEST_STEP)
    return point


def _cost(residual: Array, point: Array, weight: Array, prior: Prior) -> float:
    data = np.sum(weight * robust(residual) ** 2) / SPREAD**2
    far = point - prior.mean
    return float(0.5 * data + 0.5 * far @ prior.precision @ far)


def solve(
    residuals: Callable[[Array], Array], point: Array, weight: Array, prior: Prior, *, rounds: int = 6
) -> Linear:
    """Gauss-Newton with a halving line search; the linearisation at its end."""
    linear = linearise(residuals, point)
    before = _cost(linear.residual, point, weight, prior)
    for _ in range(rounds):
        target, share = within(linear, weight, prior), 1.0
        while True:
            trial = linear.point + share * (target - linear.point)
            after = _cost(residuals(trial), trial, weight, prior)
            if after < before or share < 0.1:
                break
            share /= 2
        if after >= before:
            break
        done, before = before - after < 0.03, after
        linear = linearise(residuals, trial)
        if done:
            break
    return linear
