"""Values that a trace lacks, drawn at random: deadlines, utilisation, scaling, errors."""

import math
from collections.abc import Sequence

import numpy as np

from rightsizer.fleet.trace_jobs import TraceJob
from rightsizer.values import immutable
from rightsizer_cli.commands.simulate.traces import TraceRow
from rightsizer_cli.usage_errors import OptionError

__all__ = ["Draw", "default_cluster_gpus", "draw_jobs", "parse_deadlines", "parse_utilisation"]

_PAI_SHARES = (0.0, 0.345, 0.5, 0.754, 0.95, 1.0)
_PAI_VALUES = (0.0, 0.0, 0.015, 0.1, 0.5, 1.0)
_WEEK_S = 7 * 86_400.0
_NODE_GPUS = 8
_HEADROOM = 1.5
_MIN_SHARE = 1e-3  # no job scales perfectly, every job scales a little

UTILISATIONS = {
    "pai": "Alibaba PAI 2020 (3.0 million instances): mean 10 %, median 1.5 %, 34.5 % of them at 0",
    "philly": "Philly 2017: mean 52 %; its shape is a guess, nearly uniform from 0 to 1",
}


@immutable
class Draw:
    """The distributions. `deadlines`: the range of lambda in submitted + lambda * duration; None: none.

    `utilisation` is "pai", "philly", or one share for all jobs. `fixed_share` is the part of the GPUs' idle
    time that more GPUs do not shorten. The sigmas are of ln(predicted / true) before a job runs,
    of ln(measured / true), and of the logit of the policy's estimate of the fixed part.
    """

    seed: int = 0
    deadlines: tuple[float, float] | None = (0.5, 1.5)
    utilisation: str | float = "pai"
    fixed_share: float = 1.0
    rate_sigma: float = 0.15
    measured_sigma: float = 0.02
    scaling_sigma: float = 0.3


def draw_jobs(rows: Sequence[TraceRow], rules: Draw) -> tuple[TraceJob, ...]:
    """The trace's jobs; values that the trace lacks are drawn."""
    source, n = np.random.default_rng(rules.seed), len(rows)
    uses = _utilisation(source, n, rules.utilisation)
    low, high = rules.deadlines or (1.0, 1.0)
    slack = source.uniform(low, high, n)
    rate, measured, scaling = (
        source.normal(0.0, sigma, n)
        for sigma in (rules.rate_sigma, rules.measured_sigma, rules.scaling_sigma)
    )
    jobs = []
    for i, row in enumerate(rows):
        use = float(uses[i]) if row.utilisation is None else row.utilisation
        fixed = min(max(rules.fixed_share * (1.0 - use), _MIN_SHARE), 1.0 - _MIN_SHARE)
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
                busy=use,
                serial=fixed,
                believed_serial=_shifted(fixed, float(scaling[i])),
                rate_error_ln=float(rate[i]),
                measured_error_ln=float(measured[i]),
            )
        )
    return tuple(jobs)


def _utilisation(source: np.random.Generator, n: int, kind: str | float) -> np.ndarray:
    """Shares; PAI's are interpolated between its published quantiles."""
    if kind == "pai":
        return np.interp(source.uniform(0.0, 1.0, n), _PAI_SHARES, _PAI_VALUES)
    if kind == "philly":
        return source.beta(1.04, 0.96, n)
    return np.full(n, float(kind))


def _shifted(share: float, by: float) -> float:
    """A share moved on the logit scale."""
    return 1.0 / (1.0 + math.exp(-(math.log(share / (1.0 - share)) + by)))


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


def parse_utilisation(text: str) -> str | float:
    """A published distribution's name, or one share for all."""
    if text in UTILISATIONS:
        return text
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        remedy = f"must be {', '.join(UTILISATIONS)} or a share, 0 to 1"
        raise OptionError("--utilisation", value=text, remedy=remedy)
    return share
