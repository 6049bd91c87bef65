"""Gaussian process regression (kriging) of residuals, averaged over two hypotheses.

In units of the engine's own standard deviation a residual's variance is 1, split into shares: what all runs
on one GPU type have in common, all of one framework, both together (a stack), one family of layouts on that
stack, one model on it, one configuration; the rest belongs to a single run (settings that no field records).
Two runs correlate by the shares that they have in common.

On some stacks, errors correlate only within a configuration: runs scatter around a correct mean, and a
single run would mislead. So two hypotheses are averaged: the shares as they are, and all shares moved to the
configuration. Their weights are their likelihoods (multivariate Student-t) times their prior: the chance
that runs of a stack have errors in common. A single run counts for less than half of what the shares alone
imply, ten runs that agree for nearly all of it. Shares, chance and noise are data (data/calibration.json).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.estimate.evidence import Evidence, Quantity, Residual, configuration_of, layout_family
from rightsizer_engine.estimate.parameters import SHARES, Parameters
from rightsizer_engine.values import immutable


@immutable
class Target:
    """The case of a correction; `layout` None: any of the family. `sigma` is the engine's deviation."""

    framework: str
    gpu: str
    model: str
    sequence_tokens: int
    family: int
    sigma: float
    layout: Layout | None = None


def job_of(run: Evidence) -> tuple[Any, ...]:
    """(framework, GPU, model, sequence length) of a run: what makes two runs one job."""
    return (run.framework, run.gpu, run.model, run.sequence_tokens)


def target_of(nouns: tuple[Any, ...], code: int) -> Target:
    """The target of a job's (framework, GPU, model, sequence length, sigma) in the layout family `code`."""
    framework, gpu, model, sequence, sigma = nouns
    return Target(
        framework=framework, gpu=gpu, model=model, sequence_tokens=sequence, family=int(code), sigma=sigma
    )


def _evidence_target(run: Evidence, sigma: float = 1.0) -> Target:
    family = int(layout_family(Columns.of(run.layout)))
    return replace(target_of((*job_of(run), sigma), family), layout=run.layout)


@immutable
class _Hypothesis:
    """One way to split the variance, with the likelihood of the evidence; `weight` is not normalised."""

    shares: tuple[float, ...]
    inverse: Array
    weights: Array
    scales: Mapping[str, float]
    log_weight: float


class Regression:
    """The evidence on one quantity, solved once under both hypotheses."""

    def __init__(self, evidence: Sequence[Evidence], quantity: Quantity, parameters: Parameters) -> None:
        self.evidence = [e for e in evidence if getattr(e, quantity) is not None]
        self.targets = [_evidence_target(e, getattr(e, quantity).sigma) for e in self.evidence]
        self._cache: dict[Target, tuple[float, float]] = {}
        if not self.evidence:
            return
        residuals: list[Residual] = [getattr(e, quantity) for e in self.evidence]
        shares = tuple(getattr(parameters, f"{quantity}_share_{name}") for name in SHARES)
        apart = (*(0.0 for _ in shares[1:]), sum(shares))
        chance, trust = getattr(parameters, f"{quantity}_in_common"), parameters.degrees_of_freedom
        hypotheses = [
            _solve(self.targets, residuals, split, prior, trust)
            for split, prior in ((shares, chance), (apart, 1.0 - chance))
            if prior > 0.0
        ]
        highest = max(h.log_weight for h in hypotheses)
        total = sum(np.exp(h.log_weight - highest) for h in hypotheses)
        self._weighted = [(float(np.exp(h.log_weight - highest) / total), h) for h in hypotheses]

    def posterior(self, target: Target) -> tuple[float, float]:
        """Mean and variance of the residual of `target`, in units of the engine's sigma and its square.

        Each hypothesis' variance is scaled by the size of the residuals on that GPU type relative to sigma
        (Student-t process). Hardware with larger errors than claimed gets a wider interval, and a toy run on
        a CPU changes nothing for an H100.
        """
        if target not in self._cache:
            conditionals = [(belief, *self._conditional(h, target)) for belief, h in self._weighted]
            mean = sum(belief * m for belief, m, _ in conditionals)
            self._cache[target] = mean, sum(belief * (v + (m - mean) ** 2) for belief, m, v in conditionals)
        return self._cache[target]

    def _conditional(self, hypothesis: _Hypothesis, target: Target) -> tuple[float, float]:
        row = np.asarray([_covariance(target, measured, hypothesis.shares) for measured in self.targets])
        unexplained = max(1.0 - float(row @ hypothesis.inverse @ row), 1e-6)
        return float(row @ hypothesis.weights), unexplained * hypothesis.scales.get(target.gpu, 1.0)


def _solve(
    targets: Sequence[Target],
    residuals: Sequence[Residual],
    shares: tuple[float, ...],
    prior: float,
    trust: float,
) -> _Hypothesis:
    """The evidence under one split of the variance: inverted once, and how likely it makes the residuals."""
    value = np.asarray([r.ln / r.sigma for r in residuals])
    covariance = np.asarray([[_covariance(a, b, shares) for b in targets] for a in targets])
    covariance += np.diag([1.0 - sum(shares) + (r.noise / r.sigma) ** 2 + 1e-9 for r in residuals])
    inverse = np.linalg.inv(covariance)
    weights, n = inverse @ value, len(value)
    distance = float(value @ weights)
    _, determinant = np.linalg.slogdet(covariance)
    return _Hypothesis(
        shares=shares,
        inverse=inverse,
        weights=weights,
        scales={gpu: _scale(targets, value, covariance, gpu, trust) for gpu in {t.gpu for t in targets}},
        log_weight=float(np.log(prior) - 0.5 * (determinant + (trust + n) * np.log1p(distance / trust))),
    )


def _scale(targets: Sequence[Target], value: Array, covariance: Array, gpu: str, trust: float) -> float:
    """The factor by which residuals on one GPU type exceed their sigma."""
    mine = np.flatnonzero([target.gpu == gpu for target in targets])
    distance = float(value[mine] @ np.linalg.solve(covariance[np.ix_(mine, mine)], value[mine]))
    return (trust + distance) / (trust + len(mine))


def _shared(a: Target, b: Target) -> tuple[bool, ...]:
    """The shares that two runs have in common, the configuration last."""
    gpu, framework = a.gpu == b.gpu, a.framework == b.framework
    stack = gpu and framework
    model = stack and a.model == b.model
    configuration = (
        model and a.layout is not None and b.layout is not None and a.sequence_tokens == b.sequence_tokens
    )
    configuration = configuration and configuration_of(a.layout) == configuration_of(b.layout)
    return gpu, framework, stack, stack and a.family == b.family, model, configuration


def _covariance(a: Target, b: Target, shares: tuple[float, ...]) -> float:
    """In units of both deviations; in common is at most what the better known of the two may err."""
    in_common = sum(share for share, shared in zip(shares, _shared(a, b), strict=True) if shared)
    return in_common * min(a.sigma, b.sigma) / max(a.sigma, b.sigma)


def covariances(evidence: Sequence[Evidence]) -> Array:
    """For each of SHARES, which pairs of runs have it in common: shape (6, n, n)."""
    targets = [_evidence_target(e) for e in evidence]
    return np.asarray([[_shared(a, b) for b in targets] for a in targets], dtype=float).transpose(2, 0, 1)


@lru_cache(maxsize=8)
def regression_of(evidence: tuple[Evidence, ...], quantity: Quantity, parameters: Parameters) -> Regression:
    """The regression of one quantity, cached by its evidence."""
    return Regression(evidence, quantity, parameters)
