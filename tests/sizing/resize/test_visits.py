"""Rates measured at earlier sizes, by hand: 100 tokens/s a GPU by the model, 8 GPUs at present."""

import math

import pytest

from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.estimate.evidence import noise_ln
from rightsizer_engine.estimate.parameters import load_calibration, load_resize
from rightsizer_engine.resize.types import JobSize, Visit
from rightsizer_engine.resize.visits import with_visits
from rightsizer_engine.search.reasons import layout_text

MODEL = tuple(JobSize(gpus=n, tokens_per_s=n * 100.0, sigma=0.2) for n in (1, 2, 4, 8, 16))


def rates(*visited, sizes=MODEL):
    found = with_visits(sizes, visited, present_gpus=8, p=load_resize())
    return [size.tokens_per_s for size in found]


def test_without_visits_the_model_holds():
    assert rates() == [100.0, 200.0, 400.0, 800.0, 1600.0]


def test_a_visited_size_has_its_measured_rate_and_the_noise_of_that_measurement():
    (size,) = (s for s in with_visits(MODEL, [Visit(gpus=2, tokens_per_s=150.0, steps=400)],
                                      present_gpus=8, p=load_resize()) if s.gpus == 2)  # fmt: skip
    assert size.tokens_per_s == 150.0
    assert size.sigma == pytest.approx(noise_ln(400, load_calibration().step_scatter))


def test_between_sizes_the_deviation_is_interpolated_and_beyond_it_stays():
    found = rates(Visit(gpus=2, tokens_per_s=150.0, steps=400))
    assert found == pytest.approx([75.0, 150.0, 400.0 * math.sqrt(0.75), 800.0, 1600.0])


def test_the_newest_visit_to_a_size_holds():
    old, new = (Visit(gpus=2, tokens_per_s=rate, steps=400) for rate in (150.0, 180.0))
    assert rates(old, new)[1] == 180.0


NOTHING = {
    "too few steps": Visit(gpus=2, tokens_per_s=150.0, steps=4),
    "the present size": Visit(gpus=8, tokens_per_s=150.0, steps=400),
    "a size that the model does not have": Visit(gpus=3, tokens_per_s=150.0, steps=400),
    "no rate": Visit(gpus=2, tokens_per_s=0.0, steps=400),
    "NaN": Visit(gpus=2, tokens_per_s=math.nan, steps=400),
    "infinite": Visit(gpus=2, tokens_per_s=math.inf, steps=400),
    "another layout": Visit(gpus=2, tokens_per_s=150.0, steps=400, layout="TP 2"),
}


@pytest.mark.parametrize("visit", NOTHING.values(), ids=NOTHING)
def test_a_visit_without_a_rate_is_ignored(visit):
    assert rates(visit) == rates()


def test_a_visit_belongs_to_its_layout_and_without_one_to_the_size_in_place():
    tp, dp = Layout(tp=2), Layout(dp=2)
    sizes = (
        JobSize(gpus=2, tokens_per_s=200.0, layout=tp, in_place=False),
        JobSize(gpus=2, tokens_per_s=190.0, layout=dp),
        JobSize(gpus=8, tokens_per_s=800.0, layout=Layout(dp=8)),
    )
    named = Visit(gpus=2, tokens_per_s=150.0, steps=400, layout=layout_text(tp))
    plain = Visit(gpus=2, tokens_per_s=140.0, steps=400)
    assert rates(named, sizes=sizes)[0] == 150.0
    assert rates(plain, sizes=sizes)[1] == 140.0
