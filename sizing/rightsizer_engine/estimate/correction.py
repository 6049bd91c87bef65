"""Correct predictions by measured runs: a shift of the logarithm, and a narrower interval.

A residual is ln(measured / predicted) of one run. In units of the engine's own standard deviation its
variance is 1, split into shares: what all runs on one GPU type have in common, all of one framework, both
together (a stack), one family of layouts on that stack, one model on it, one configuration; the rest
belongs to a single run (settings that no field records). Two runs correlate by the shares that they have in
common. The correction of a case is the conditional mean given all evidence, its variance the conditional
variance (Gaussian process regression, also known as kriging). So a run of another family counts partly, a
few noisy steps have little effect, and without evidence nothing changes.

On some stacks, errors correlate only within a configuration: runs scatter around a correct mean, and a
single run would mislead. So two hypotheses are averaged: the shares as they are, and all shares moved to the
configuration. Their weights are their likelihoods (multivariate Student-t) times their prior: the chance
that runs of a stack have errors in common. A single run counts for less than half of what the shares alone
imply, ten runs that agree for nearly all of it. Shares, chance and noise are data (data/calibration.json).
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Array, Columns
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.parameters import SHARES, Parameters, load_calibration
from rightsizer_engine.values import immutable


class LayoutFamily(enum.IntEnum):
    """Kinds of layouts whose errors have a cause in common, by the most intricate parallelism in them."""

    DATA = 0
    SHARDED = 1
    TENSOR = 2
    PIPELINE = 3
    EXPERT = 4


class Quantity(enum.StrEnum):
    """What is corrected."""

    STEP = "step"
    MEMORY = "memory"


@immutable
class Residual:
    """`ln` is ln(measured / predicted), `sigma` the engine's deviation of it, `noise` the measurement's."""

    ln: float
    sigma: float
    noise: float


@immutable
class Evidence:
    """One measured run: what it ran on and how, for how many steps, and how far off the prediction was.

    Its start-up and its rate of writing checkpoints are 0 if they were not measured.
    """

    run: str
    framework: str
    gpu: str
    model: str
    sequence_tokens: int
    layout: Layout
    steps: int
    step: Residual | None = None
    memory: Residual | None = None
    start_s: float = 0.0
    checkpoint_bytes_per_s_per_node: float = 0.0


@immutable
class Calibration:
    """The evidence of one user's runs."""

    evidence: tuple[Evidence, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.evidence)


@immutable
class Correction:
    """Factors for predictions and for sigma. Shape () or (n,)."""

    factor: Array
    sigma_factor: Array


_SAME = ("tp", "pp", "vpp", "cp", "ep", "sharding", "micro_batch", "recompute", "offload")
"""Columns that two layouts must share to be one configuration: the work of each GPU.

Data-parallel ranks and micro-batches are not among them. Published runs that differ only in these agree as
well as runs with equal layouts (half the squared difference: 0.24 and 0.31 sigma squared).
"""

_NONE = Correction(factor=np.asarray(1.0), sigma_factor=np.asarray(1.0))


@immutable
class _Target:
    """What a correction is for; `layout` None: any of the family. `sigma` is the engine's deviation."""

    framework: str
    gpu: str
    model: str
    sequence_tokens: int
    family: int
    sigma: float
    layout: Layout | None = None


def layout_family(layout: Columns) -> Array:
    """The LayoutFamily of each layout, as codes."""
    tensor = (layout.tp > 1) | (layout.cp > 1)
    code = np.where(layout.sharding >= Sharding.ZERO3, LayoutFamily.SHARDED, LayoutFamily.DATA)
    code = np.where(tensor, LayoutFamily.TENSOR, code)
    code = np.where(layout.pp > 1, LayoutFamily.PIPELINE, code)
    return np.asarray(np.where(layout.ep > 1, LayoutFamily.EXPERT, code))


def noise_ln(steps: int, scatter: float, parameters: Parameters | None = None) -> float:
    """Standard deviation of ln(mean step time) measured over `steps` whose ln scatters by `scatter`.

    Three independent parts: the scatter over root n, the start-up (worth `step_startup` steps in
    all), and the difference between two runs of one configuration.
    """
    p = parameters or load_calibration()
    n = max(1, steps)
    return float(np.sqrt(scatter**2 / n + (p.step_startup / n) ** 2 + p.step_between_runs**2))


def correct(
    calibration: Calibration | None,
    cases: Cases,
    sigma: Array,
    quantity: Quantity,
    parameters: Parameters | None = None,
) -> Correction:
    """The corrections of cases whose standard deviations of ln(true / predicted) are `sigma`."""
    evidence = calibration.evidence if calibration else ()
    regression = _regression(evidence, quantity, parameters or load_calibration())
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
    regression = _regression(calibration.evidence, Quantity.STEP, load_calibration())
    nouns = (*(noun.item() for noun in _job_columns(cases)), sigma)
    levels: dict[int, list[float]] = {}
    for target in _configurations(regression, nouns):
        for compared in (target, _target(nouns, target.family)):
            mean, variance = regression.posterior(compared)
            levels.setdefault(target.family, []).append(sigma * (mean + z * variance**0.5))
    return float(np.exp(max((max(v) - min(v) for v in levels.values()), default=0.0)))


def measured_layouts(calibration: Calibration | None, cases: Cases) -> tuple[Layout, ...]:
    """The layouts in which this job was measured."""
    if not calibration:
        return ()
    nouns = tuple(noun.item() for noun in _job_columns(cases))
    layouts = {e.layout for e in calibration.evidence if nouns == _job_of(e)}
    return tuple(sorted(layouts, key=_key))


def _job_of(run: Evidence) -> tuple[Any, ...]:
    return (run.framework, run.gpu, run.model, run.sequence_tokens)


def _job_columns(cases: Cases) -> tuple[Array, Array, Array, Array]:
    return (cases.framework.name, cases.gpu.name, cases.architecture.name, cases.workload.sequence_tokens)


def _of_families(
    regression: "_Regression", family: Array, nouns: tuple[Any, ...], layout: Columns
) -> tuple[Array, Array]:
    """Mean and variance for many layouts of one job: by family, then for measured configurations.

    `nouns` end with the engine's deviation, which is the same for all layouts.
    """
    table = np.asarray([regression.posterior(_target(nouns, code)) for code in LayoutFamily])
    mean, variance = table[family, 0], table[family, 1]
    for target in _configurations(regression, nouns):
        rows = _rows_like(target, layout, np.shape(mean))
        if rows.size:
            flat_mean, flat_variance = np.atleast_1d(mean), np.atleast_1d(variance)
            flat_mean[rows], flat_variance[rows] = regression.posterior(target)
            mean, variance = flat_mean.reshape(np.shape(mean)), flat_variance.reshape(np.shape(mean))
    return mean, variance


def _of_rows(
    regression: "_Regression", family: Array, nouns: tuple[Array, ...], layout: Columns
) -> tuple[Array, Array]:
    """Mean and variance of different jobs, row by row."""
    columns = np.broadcast_arrays(family, *nouns)
    same = np.broadcast_arrays(*(getattr(layout, name) for name in _SAME), columns[0])[:-1]
    posteriors = []
    for index in range(columns[0].size):
        key = tuple(column.reshape(-1)[index].item() for column in columns)
        like = tuple(int(column.reshape(-1)[index]) for column in same)
        target = next((t for t in _configurations(regression, key[1:]) if _key(t.layout) == like), None)
        posteriors.append(regression.posterior(target or _target(key[1:], key[0])))
    table = np.asarray(posteriors).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _target(nouns: tuple[Any, ...], code: int) -> _Target:
    framework, gpu, model, sequence, sigma = nouns
    return _Target(
        framework=framework, gpu=gpu, model=model, sequence_tokens=sequence, family=int(code), sigma=sigma
    )


def _configurations(regression: "_Regression", nouns: tuple[Any, ...]) -> Iterator[_Target]:
    """The measured configurations of this job."""
    layouts = set()
    for run, target in zip(regression.evidence, regression.targets, strict=True):
        if _job_of(run) == nouns[:4] and run.layout not in layouts:
            layouts.add(run.layout)
            yield replace(target, sigma=nouns[4])


def _rows_like(target: _Target, layout: Columns, shape: tuple[int, ...]) -> Array:
    """Indices of the rows that are this configuration."""
    rows = np.arange(int(np.prod(shape)))
    for name, value in zip(_SAME, _key(target.layout), strict=True):
        column = getattr(layout, name)
        equal = column == value if column.ndim == 0 else column[rows] == value
        rows = rows[np.broadcast_to(equal, rows.shape)]
        if not rows.size:
            break
    return rows


def same_configuration(one: Layout, other: Layout) -> bool:
    """Whether each GPU does the same in both layouts, on however many data-parallel ranks."""
    return _key(one) == _key(other)


def _key(layout: Layout | None) -> tuple[int, ...]:
    return tuple(int(getattr(layout, name)) for name in _SAME)


def _evidence_target(run: Evidence, sigma: float = 1.0) -> _Target:
    family = int(layout_family(Columns.of(run.layout)))
    return replace(_target((*_job_of(run), sigma), family), layout=run.layout)


@immutable
class _Hypothesis:
    """One way to split the variance, with the likelihood of the evidence; `weight` is not normalised."""

    shares: tuple[float, ...]
    inverse: Array
    weights: Array
    scales: Mapping[str, float]
    log_weight: float


class _Regression:
    """The evidence on one quantity, solved once under both hypotheses."""

    def __init__(self, evidence: Sequence[Evidence], quantity: Quantity, parameters: Parameters) -> None:
        self.evidence = [e for e in evidence if getattr(e, quantity) is not None]
        self.targets = [_evidence_target(e, getattr(e, quantity).sigma) for e in self.evidence]
        self._cache: dict[_Target, tuple[float, float]] = {}
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

    def posterior(self, target: _Target) -> tuple[float, float]:
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

    def _conditional(self, hypothesis: _Hypothesis, target: _Target) -> tuple[float, float]:
        row = np.asarray([_covariance(target, measured, hypothesis.shares) for measured in self.targets])
        unexplained = max(1.0 - float(row @ hypothesis.inverse @ row), 1e-6)
        return float(row @ hypothesis.weights), unexplained * hypothesis.scales.get(target.gpu, 1.0)


def _solve(
    targets: Sequence[_Target],
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


def _scale(targets: Sequence[_Target], value: Array, covariance: Array, gpu: str, trust: float) -> float:
    """The factor by which residuals on one GPU type exceed their sigma."""
    mine = np.flatnonzero([target.gpu == gpu for target in targets])
    distance = float(value[mine] @ np.linalg.solve(covariance[np.ix_(mine, mine)], value[mine]))
    return (trust + distance) / (trust + len(mine))


def _shared(a: _Target, b: _Target) -> tuple[bool, ...]:
    """The shares that two runs have in common, the configuration last."""
    gpu, framework = a.gpu == b.gpu, a.framework == b.framework
    stack = gpu and framework
    model = stack and a.model == b.model
    configuration = (
        model and a.layout is not None and b.layout is not None and a.sequence_tokens == b.sequence_tokens
    )
    configuration = configuration and _key(a.layout) == _key(b.layout)
    return gpu, framework, stack, stack and a.family == b.family, model, configuration


def _covariance(a: _Target, b: _Target, shares: tuple[float, ...]) -> float:
    """In units of both deviations; in common is at most what the better known of the two may err."""
    in_common = sum(share for share, shared in zip(shares, _shared(a, b), strict=True) if shared)
    return in_common * min(a.sigma, b.sigma) / max(a.sigma, b.sigma)


def covariances(evidence: Sequence[Evidence]) -> Array:
    """For each of SHARES, which pairs of runs have it in common: shape (6, n, n)."""
    targets = [_evidence_target(e) for e in evidence]
    return np.asarray([[_shared(a, b) for b in targets] for a in targets], dtype=float).transpose(2, 0, 1)


@lru_cache(maxsize=8)
def _regression(evidence: tuple[Evidence, ...], quantity: Quantity, parameters: Parameters) -> _Regression:
    return _Regression(evidence, quantity, parameters)
