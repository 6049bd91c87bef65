"""Predicted sizes scaled to a measured rate, by hand."""

import math
from dataclasses import fields

import pytest

from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.estimate.evidence import noise_ln
from rightsizer_engine.estimate.parameters import SHARES, load_calibration
from rightsizer_engine.resize.scaling import recalibrate, size_from_option
from rightsizer_engine.search.types import Option

P = load_calibration()


def option(**figures):
    return Option(**{f.name: 0.0 for f in fields(Option)} | {"lost_by_cause": {}, "goodput": 0.9} | figures)


@pytest.fixture
def sizes():
    """DP 8 at 800 tokens/s, DP 16 at 1,500, tensor parallel on 16 at 1,400."""
    made = [
        option(layout=layout, gpus=gpus, tokens_per_s=rate, sigma=0.2)
        for layout, gpus, rate in (
            (Layout(dp=8), 8, 800.0),
            (Layout(dp=16), 16, 1500.0),
            (Layout(tp=8, dp=2, sharding=Sharding.ZERO1), 16, 1400.0),
        )
    ]
    return [size_from_option(one, made[0]) for one in made]


def test_every_size_moves_by_measured_over_predicted(sizes):
    found = recalibrate(sizes, sizes[0].option, gpus=8, tokens_per_s=600.0, steps=100)
    assert [s.tokens_per_s for s in found] == pytest.approx([600.0, 1125.0, 1050.0])
    assert [s.in_place for s in found] == [True, True, False]


def test_a_job_at_another_size_is_compared_with_that_size(sizes):
    found = recalibrate(sizes, sizes[0].option, gpus=16, tokens_per_s=750.0, steps=100)
    assert [s.tokens_per_s for s in found] == pytest.approx([400.0, 750.0, 700.0])


def test_a_size_that_no_option_has_is_compared_in_proportion(sizes):
    found = recalibrate(sizes, sizes[0].option, gpus=4, tokens_per_s=300.0, steps=100)
    assert found[0].tokens_per_s == pytest.approx(600.0)


def test_another_size_and_another_layout_add_twice_their_share_of_the_variance(sizes):
    """sigma^2 = noise^2 + 0.2^2 x 2 (shares of a run, of the configuration and family where they differ)."""
    noise = noise_ln(100, P.step_scatter)
    run = 1.0 - sum(getattr(P, f"step_share_{name}") for name in SHARES)
    layout = P.step_share_configuration + P.step_share_family
    found = recalibrate(sizes, sizes[0].option, gpus=8, tokens_per_s=600.0, steps=100)
    shares = (0.0, run, run + layout)
    assert [s.sigma for s in found] == pytest.approx([math.sqrt(noise**2 + 2 * x * 0.04) for x in shares])
