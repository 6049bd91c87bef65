"""Values that a trace lacks, drawn at random: deadlines, scaling, errors of predictions and measurements."""

import csv
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from statistics import median

import numpy as np

from rightsizer_cli.requests.traces import TraceRow
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.fleet.trace_jobs import TraceJob
from rightsizer_engine.values import immutable

_WEEK_S = 7 * 86_400.0
_NODE_GPUS = 8
_HEADROOM = 1.5

DEADLINES = ((0.5, 1.5), (1.0, 3.0))
"""Ranges of lambda: as ElasticFlow draws it (half of the jobs need more speed than requested), and loose."""

SCALINGS = ("published", "even", "poor")
"""Scaling of the jobs: of a source of published runs at random, even, or of the source that scales worst."""


@immutable
class Draw:
    """The distributions. `deadlines`: the range of lambda in submitted + lambda * duration; None: none.

    `scaling` is one of `SCALINGS`, or one exponent for all jobs. The sigmas are of ln(predicted / true rate)
    before a job runs, and of ln(measured / true).
    """

    seed: int = 0
    deadlines: tuple[float, float] | None = DEADLINES[0]
    scaling: str | float = SCALINGS[0]
    rate_sigma: float = 0.15
    measured_sigma: float = 0.02


@cache
def published_exponents() -> Mapping[str, tuple[float, ...]]:
    """ln(rate ratio) / ln(GPU ratio) of published runs at one batch size, by source; at most 1."""
    text = files("rightsizer_cli").joinpath("data", "strong_scaling.csv").read_text("utf-8")
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    groups: dict[str, list[float]] = {}
    for row in csv.DictReader(lines):
        groups.setdefault(row["group"], []).append(min(1.0, float(row["exponent"])))
    return {name: tuple(sorted(values)) for name, values in sorted(groups.items())}


def draw_jobs(rows: Sequence[TraceRow], rules: Draw) -> tuple[TraceJob, ...]:
    """The trace's jobs; values that the trace lacks are drawn."""
    source, n = np.random.default_rng(rules.seed), len(rows)
    low, high = rules.deadlines or (1.0, 1.0)
    slack = source.uniform(low, high, n)
    rate, measured = (source.normal(0.0, sigma, n) for sigma in (rules.rate_sigma, rules.measured_sigma))
    exponents = _exponents(source, n, rules.scaling)
    jobs = []
    for i, row in enumerate(rows):
        deadline_s = row.deadline_s
        if deadline_s is None and rules.deadlines is not None:
            deadline_s = row.submitted_s + float(slack[i]) * row.duration_s
        jobs.append(
            TraceJob(
                key=str(i),
                submitted_s=row.submitted_s,
                duration_s=row.duration_s,
                gpus=row.gpus,
                deadline_s=deadline_s,
                exponent=float(exponents[i]),
                rate_error_ln=float(rate[i]),
                measured_error_ln=float(measured[i]),
            )
        )
    return tuple(jobs)


def _exponents(source: np.random.Generator, n: int, kind: str | float) -> np.ndarray:
    """An exponent for each job. Every source counts alike, however many series it has."""
    groups = list(published_exponents().values())
    chosen, position = source.integers(len(groups), size=n), source.uniform(size=n)
    if kind == "poor":
        groups, chosen = [min(groups, key=median)], np.zeros(n, dtype=int)
    if kind in SCALINGS and kind != "even":
        pairs = zip(chosen, position, strict=True)
        return np.asarray([groups[g][int(p * len(groups[g]))] for g, p in pairs])
    return np.full(n, 1.0 if kind == "even" else float(kind))


def default_cluster_gpus(rows: Sequence[TraceRow]) -> int:
    """1.5 x the busiest week's mean demand, at least the largest job, in whole nodes."""
    start_s = min(row.submitted_s for row in rows)
    weeks: dict[int, float] = {}
    for row in rows:
        week = int((row.submitted_s - start_s) // _WEEK_S)
        weeks[week] = weeks.get(week, 0.0) + row.gpus * row.duration_s
    busiest = _HEADROOM * max(weeks.values()) / _WEEK_S
    largest = max(row.gpus for row in rows)
    return _NODE_GPUS * math.ceil(max(busiest, largest) / _NODE_GPUS)


def parse_deadlines(text: str) -> tuple[float, float] | None:
    """LOW:HIGH, or none."""
    if text == "none":
        return None
    low, colon, high = text.partition(":")
    try:
        bounds = float(low), float(high)
    except ValueError:
        bounds = math.nan, math.nan
    if not colon or not 0 < bounds[0] <= bounds[1] <= 1000:
        remedy = "must be LOW:HIGH, such as 0.5:1.5: deadline = submitted + (LOW to HIGH) x duration; or none"
        raise OptionError("--deadlines", value=text, remedy=remedy)
    return bounds


def parse_scaling(text: str) -> str | float:
    """One of `SCALINGS`, or one exponent for all jobs."""
    if text in SCALINGS:
        return text
    try:
        exponent = float(text)
    except ValueError:
        exponent = math.nan
    if not 0 <= exponent <= 1:
        remedy = f"must be {', '.join(SCALINGS)} or an exponent, 0 (no speed-up) to 1 (even scaling)"
        raise OptionError("--scaling", value=text, remedy=remedy)
    return exponent
