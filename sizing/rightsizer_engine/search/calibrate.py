"""Calibration from measured runs: measured step times and memory peaks correct later predictions."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rightsizer_engine.domain.cases import Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.correction import correct
from rightsizer_engine.estimate.evidence import (
    Calibration,
    Evidence,
    LayoutFamily,
    Quantity,
    Residual,
    layout_family,
    noise_ln,
)
from rightsizer_engine.estimate.parameters import load_calibration
from rightsizer_engine.estimate.prediction import predict
from rightsizer_engine.search.pricing.context import checkpoint_bytes
from rightsizer_engine.values import immutable

MOST_OBSERVATIONS = 200
"""The latest observations kept. The correction's cost is cubic in their number."""


def merge_observations(old: Iterable[Observation], new: Iterable[Observation]) -> tuple[Observation, ...]:
    """The latest MOST_OBSERVATIONS of both. Each run counts once; the newer observation wins."""
    by_run = {o.run: o for o in old}
    for observation in new:
        by_run.pop(observation.run, None)
        by_run[observation.run] = observation
    return tuple(by_run.values())[-MOST_OBSERVATIONS:]


def calibration(observations: Sequence[Observation]) -> Calibration:
    """Compare observations with the engine's current predictions for their cases."""
    if not observations:
        return Calibration()
    prediction = predict(Cases.stack(o.case for o in observations))
    n = len(observations)
    step_s, step_sigma, memory_bytes, memory_sigma = (
        np.broadcast_to(column, (n,))
        for column in (
            prediction.step_s,
            prediction.step_sigma,
            prediction.memory.allocated_bytes,
            prediction.memory_sigma,
        )
    )
    return Calibration(
        evidence=tuple(
            _evidence(o, (step_s[i], step_sigma[i]), (memory_bytes[i], memory_sigma[i]))
            for i, o in enumerate(observations)
        )
    )


def _evidence(observation: Observation, step: tuple[float, float], memory: tuple[float, float]) -> Evidence:
    p, case = load_calibration(), observation.case
    noise = noise_ln(observation.steps, observation.scatter or p.step_scatter)
    return Evidence(
        run=observation.run,
        framework=case.framework.name,
        gpu=case.cluster.gpu.name,
        model=case.architecture.name,
        sequence_tokens=case.workload.sequence_tokens,
        layout=case.layout,
        steps=observation.steps,
        step=_residual(observation.step_s, *step, noise),
        memory=_residual(observation.allocated_bytes, *memory, p.memory_between_runs),
        start_s=observation.start_s,
        checkpoint_bytes_per_s_per_node=_write_bytes_per_s(observation),
    )


def _write_bytes_per_s(observation: Observation) -> float:
    """The rate of each writing node for the checkpoint that the engine assumes; 0: not measured."""
    if not observation.checkpoint_s > 0:
        return 0.0
    writers = goodput.writers(observation.case.layout.gpus)
    return checkpoint_bytes(observation.case) / observation.checkpoint_s / float(writers)


def _residual(measured: float, predicted: float, sigma: float, noise: float) -> Residual | None:
    if not measured > 0:
        return None
    return Residual(ln=math.log(measured / float(predicted)), sigma=float(sigma), noise=noise)


@immutable
class CorrectionFactors:
    """Corrections for one (framework, GPU, family of layouts).

    `*_ratio` is the geometric mean of measured / predicted, None without measurements. `*_factor` corrects
    another model on the same stack and family; `*_sigma_factor` scales the width of its interval.
    """

    framework: str
    gpu: str
    family: LayoutFamily
    runs: int
    steps: int
    step_ratio: float | None
    step_factor: float
    step_sigma_factor: float
    memory_ratio: float | None
    memory_factor: float
    memory_sigma_factor: float


def correction_factors(
    measured: Calibration, runs: Iterable[Evidence] | None = None
) -> tuple[CorrectionFactors, ...]:
    """One row for each (framework, GPU, family) in `runs`, or in all measured runs."""
    groups: dict[tuple[str, str, int], list[Evidence]] = {}
    for evidence in measured.evidence if runs is None else runs:
        family = int(layout_family(Columns.of(evidence.layout)))
        groups.setdefault((evidence.framework, evidence.gpu, family), []).append(evidence)
    return tuple(_factors(measured, key, members) for key, members in groups.items())


def _factors(measured: Calibration, key: tuple[str, str, int], members: list[Evidence]) -> CorrectionFactors:
    corrections: dict[str, Any] = {}
    for quantity in Quantity:
        residuals = [getattr(e, quantity) for e in members if getattr(e, quantity) is not None]
        sigma = float(np.mean([r.sigma for r in residuals])) if residuals else 0.0
        correction = correct(measured, _other_model_case(members[0]), np.asarray(sigma), quantity)
        ratio = math.exp(float(np.mean([r.ln for r in residuals]))) if residuals else None
        corrections |= {
            f"{quantity}_ratio": ratio,
            f"{quantity}_factor": float(correction.factor),
            f"{quantity}_sigma_factor": float(correction.sigma_factor),
        }
    framework_name, gpu, family = key
    return CorrectionFactors(
        framework=framework_name,
        gpu=gpu,
        family=LayoutFamily(family),
        runs=len(members),
        steps=sum(e.steps for e in members),
        **corrections,
    )


def _other_model_case(evidence: Evidence) -> Cases:
    """The columns that a correction reads, for another model on the same stack and layout family."""
    nouns = {"name": np.asarray("")}
    return Cases(
        architecture=Columns(nouns),
        workload=Columns({"sequence_tokens": np.asarray(0)}),
        cluster=Columns({}),
        gpu=Columns({"name": np.asarray(evidence.gpu)}),
        framework=Columns({"name": np.asarray(evidence.framework)}),
        layout=Columns.of(evidence.layout),
    )
