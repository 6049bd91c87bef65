"""Published whole runs and their predictions: errors and their scatter."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench.fit.uncertainty import log_density
from bench.fitting import DATA

from rightsizer_engine.estimate import goodput
from rightsizer_engine.estimate.uncertainty import quantile

GOAL = 0.15
LARGE = 0.7
FITTED = {"told": "sigma_ln", "asked": "sigma_ln_assumed"}
"""The entries of data/whole_run.json that tellings settle: a plan, too, chooses its layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run: GPU-hours measured, predicted and at the GPU's peak.

    `inside` says that the 80 % interval holds the truth.
    """

    id: str
    model: str
    gpu: str
    gpus_known: bool
    gpus: int
    measured_gpu_h: float
    predicted_gpu_h: float
    ideal_gpu_h: float
    share: float
    step_sigma: float
    error: float
    inside: bool
    mfu: float
    goodput: float
    layout: str


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Errors of the runs on a known number of GPUs, and of the others."""
    groups = {
        "gpus_known": [r for r in results if r.gpus_known],
        "gpus_unknown": [r for r in results if not r.gpus_known],
    }
    return {name: _errors(members) for name, members in groups.items()}


def _errors(results: Sequence[Result]) -> dict[str, Any]:
    if not results:
        return {"n": 0}
    error = np.asarray([r.error for r in results])
    size = np.abs(error)
    return {
        "n": len(results),
        "median": round(float(np.median(size)), 4),
        "mean": round(float(size.mean()), 4),
        "p90": round(float(np.percentile(size, 90)), 4),
        "bias": round(float(np.median(error)), 4),
        "inside_80": round(float(np.mean([r.inside for r in results])), 4),
        "within_goal": round(float(np.mean(size <= GOAL)), 4),
        "scaled": round(float(np.median(np.abs(_scaled(results)))), 4),
        "null": round(float(np.median(np.abs(_null(results)))), 4),
    }


def _null(results: Sequence[Result]) -> Any:
    """Errors where every run is given the median utilisation of the other sources' runs."""
    ln, source = np.log([r.ideal_gpu_h / r.measured_gpu_h for r in results]), _sources(results)
    return np.expm1([own - np.median(ln[source != one]) for own, one in zip(ln, source, strict=True)])


def _scaled(results: Sequence[Result]) -> Any:
    """Errors minus the median ln error of all other sources (runs of one model family)."""
    ln, source = np.log1p([r.error for r in results]), _sources(results)
    others = [np.median(ln[source != one]) if np.any(source != one) else 0.0 for one in source]
    return np.expm1(ln - np.asarray(others))


def _sources(results: Sequence[Result]) -> Any:
    """The family of models that a run belongs to: one source."""
    return np.asarray([re.split(r"[-\d. ]", r.model)[0] for r in results])


def whole_run(results: Sequence[Result]) -> tuple[float, dict[str, float]]:
    """The scatter of whole runs beyond the step time, and the coverage of a fit without the run's family.

    `large` and `small`: runs with more and with less than LARGE of the losses of an endless run.
    """
    ln = np.abs(np.log([r.measured_gpu_h / r.predicted_gpu_h for r in results]))
    step = np.hypot([r.step_sigma for r in results], goodput.stays_ln())
    source, share = _sources(results), np.asarray([r.share for r in results])
    spread = np.asarray(
        [_spread(ln[source != one], step[source != one], source[source != one]) for one in source]
    )
    inside = ln <= quantile(0.9) * np.hypot(step, spread)
    groups = {"": np.ones(ln.shape, dtype=bool), "_large": share > LARGE, "_small": share <= LARGE}
    by_source = [np.mean(inside[source == one]) for one in np.unique(source)]
    return round(_spread(ln, step, source), 3), {
        "n": len(results),
        **{f"inside_80{name}": round(float(np.mean(inside[rows])), 4) for name, rows in groups.items()},
        "inside_80_by_source": round(float(np.mean(by_source)), 4),
    }


def _spread(size: Any, step: Any, source: Any) -> float:
    """The likeliest deviation; sources weigh by the root of their n.

    The least that holds 80 % of so few runs would jump by a tenth from one run to the next.
    """
    _, index, counts = np.unique(source, return_inverse=True, return_counts=True)
    weight = 1.0 / np.sqrt(counts[index])
    trials = np.arange(0.0, 1.5, 0.005)
    return float(max(trials, key=lambda t: np.average(log_density(size, np.hypot(step, t)), weights=weight)))


def write(entry: str, sigma: float, date: str) -> None:
    """Replace a fitted value in data/whole_run.json."""
    path = DATA / "whole_run.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document[entry]["value"] = sigma
    document["date"] = date or document["date"]
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
