"""The opening size, the reserve and the probability that they state."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rightsizer_engine.search.opening import (
    WIDE,
    Constraints,
    OpeningProblem,
    RateErrors,
    SizeCurve,
    choose_opening,
)

sys.path.append(str(Path(__file__).resolve().parents[3]))  # bench is run from the repository, not installed
from bench.opening import simulate

HOUR = 3600.0
GPUS = np.arange(8, 400, 8)
CASE = OpeningProblem(
    sizes=SizeCurve(gpus=GPUS, finish_s=72 * HOUR * 64 / GPUS),
    errors=RateErrors(measurable=0.2, between_sizes=0.03, unmeasurable=0.04),
    constraints=Constraints(
        deadline_s=72 * HOUR, confidence=0.9, start_s=600.0, restart_s=900.0, lead_s=HOUR
    ),
)
EVEN = int(np.searchsorted(GPUS, 72))


def test_a_job_opens_at_the_size_that_is_enough_at_even_odds_and_may_grow():
    opening, staging = choose_opening(CASE, first=EVEN)
    assert GPUS[opening] == 72
    assert 72 < staging.likely_gpus < staging.reserve_gpus < 72 * 2.5
    assert staging.probability >= 0.9


@pytest.mark.parametrize("scale", [1.0, WIDE])
@pytest.mark.parametrize("unmeasurable", [0.04, 0.06])
def test_the_stated_probability_holds_within_3_points(scale, unmeasurable):
    """The bench's simulation is independent code."""
    case = replace(CASE, errors=replace(CASE.errors, unmeasurable=unmeasurable))
    opening, staging = choose_opening(case, first=EVEN)
    reserve = int(np.searchsorted(GPUS, staging.reserve_gpus))
    normal = np.random.default_rng(1).standard_normal

    def draw(sigma):
        return scale * sigma * normal()

    ends = np.asarray([simulate(case, opening, reserve, draw)[0] for _ in range(1000)])
    assert np.mean(ends <= case.constraints.deadline_s) == pytest.approx(staging.probability, abs=0.03)


def test_more_confidence_never_opens_smaller_and_is_reached():
    asked = (0.6, 0.8, 0.9, 0.95, 0.99)
    courses = [replace(CASE.constraints, confidence=confidence) for confidence in asked]
    found = [choose_opening(replace(CASE, constraints=constraints), first=EVEN) for constraints in courses]
    assert sorted(found, key=lambda f: f[0]) == found
    assert all(f[1].probability >= confidence for f, confidence in zip(found, asked, strict=True))


def test_the_policy_grows_with_the_measured_step_and_starts_below_the_opening_size():
    _, staging = choose_opening(CASE, first=EVEN)
    assert staging.policy[0].step_ratio == 0.0
    assert [g.gpus for g in staging.policy] == sorted({g.gpus for g in staging.policy})
    assert staging.policy[0].gpus < 72 < staging.policy[-1].gpus == staging.reserve_gpus


def test_a_job_too_short_to_grow_opens_larger():
    short = replace(CASE, sizes=replace(CASE.sizes, finish_s=1 * HOUR * 64 / GPUS))
    short = replace(short, constraints=replace(CASE.constraints, deadline_s=1 * HOUR))
    opening, staging = choose_opening(short, first=EVEN)
    assert GPUS[opening] > 72
    assert staging.reserve_gpus == GPUS[opening]


def test_no_size_within_the_cap_or_the_budget_is_no_opening():
    capped = SizeCurve(gpus=GPUS[: EVEN + 1], finish_s=CASE.sizes.finish_s[: EVEN + 1])
    assert choose_opening(replace(CASE, sizes=capped), first=EVEN) is None
    poor = replace(CASE, constraints=replace(CASE.constraints, most_gpu_s=60 * 64 * HOUR))
    assert choose_opening(poor, first=EVEN) is None
