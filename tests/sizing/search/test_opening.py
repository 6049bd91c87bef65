"""The opening size, the reserve and the probability that they state."""

from dataclasses import replace

import numpy as np
import pytest

from rightsizer.search.opening import WIDE, Belief, Case, Course, Draws, Sizes, choose_opening, follow

HOUR = 3600.0
GPUS = np.arange(8, 400, 8)
CASE = Case(
    sizes=Sizes(gpus=GPUS, finish_s=72 * HOUR * 64 / GPUS),
    belief=Belief(removed=0.2, scaling=0.03, stays=0.04),
    course=Course(deadline_s=72 * HOUR, confidence=0.9, start_s=600.0, restart_s=900.0, lead_s=HOUR),
)
EVEN = int(np.searchsorted(GPUS, 72))


def random_draws(seed: int, scale: float, count: int = 4000) -> Draws:
    """True deviations `scale` times those believed."""
    normal = np.random.default_rng(seed).standard_normal
    return Draws(
        scale=np.full(count, scale),
        removed=normal(count),
        stays=normal(count),
        scaling=normal((count, 5)),
        noise=normal((count, 5)),
    )


def test_a_job_opens_at_the_size_that_is_enough_at_even_odds_and_may_grow():
    opening, staging = choose_opening(CASE, first=EVEN)
    assert GPUS[opening] == 72
    assert 72 < staging.likely_gpus < staging.reserve_gpus < 72 * 2.5
    assert staging.probability >= 0.9


@pytest.mark.parametrize("scale", [1.0, WIDE])
@pytest.mark.parametrize("stays", [0.02, 0.04, 0.06])
def test_the_stated_probability_holds_within_3_points(scale, stays):
    case = replace(CASE, belief=replace(CASE.belief, stays=stays))
    opening, staging = choose_opening(case, first=EVEN)
    reserve = int(np.searchsorted(GPUS, staging.reserve_gpus))
    ends = follow(case, random_draws(1, scale), opening=opening, reserve=reserve).end_s
    assert np.mean(ends <= case.course.deadline_s) == pytest.approx(staging.probability, abs=0.03)


def test_more_confidence_never_opens_smaller_and_is_reached():
    asked = (0.6, 0.8, 0.9, 0.95, 0.99)
    courses = [replace(CASE.course, confidence=confidence) for confidence in asked]
    found = [choose_opening(replace(CASE, course=course), first=EVEN) for course in courses]
    assert sorted(found, key=lambda f: f[0]) == found
    assert all(f[1].probability >= confidence for f, confidence in zip(found, asked, strict=True))


def test_the_policy_grows_with_the_measured_step_and_starts_below_the_opening_size():
    _, staging = choose_opening(CASE, first=EVEN)
    assert staging.policy[0].step_ratio == 0.0
    assert [g.gpus for g in staging.policy] == sorted({g.gpus for g in staging.policy})
    assert staging.policy[0].gpus < 72 < staging.policy[-1].gpus == staging.reserve_gpus


def test_a_job_too_short_to_grow_opens_larger():
    short = replace(CASE, sizes=replace(CASE.sizes, finish_s=1 * HOUR * 64 / GPUS))
    short = replace(short, course=replace(CASE.course, deadline_s=1 * HOUR))
    opening, staging = choose_opening(short, first=EVEN)
    assert GPUS[opening] > 72
    assert staging.reserve_gpus == GPUS[opening]


def test_no_size_within_the_cap_or_the_budget_is_no_opening():
    capped = Sizes(gpus=GPUS[: EVEN + 1], finish_s=CASE.sizes.finish_s[: EVEN + 1])
    assert choose_opening(replace(CASE, sizes=capped), first=EVEN) is None
    poor = replace(CASE, course=replace(CASE.course, most_gpu_s=60 * 64 * HOUR))
    assert choose_opening(poor, first=EVEN) is None
