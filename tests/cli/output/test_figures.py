"""Pictures: no label covers another one or leaves the picture, and each axis names its unit."""

import pytest
from matplotlib.figure import Figure
from tests.pictures import collisions, cut

from rightsizer_cli.output.plan_figure import plan_figure
from rightsizer_cli.output.replay_figure import replay_figure
from rightsizer_cli.page.response import respond
from rightsizer_cli.requests.replays import compare
from rightsizer_cli.requests.trace_jobs import DEADLINES, SCALINGS, Draw
from rightsizer_cli.requests.traces import read_trace
from rightsizer_engine.fleet.trace_jobs import ReplayRules

pytestmark = pytest.mark.slow  # matplotlib takes seconds to start


PLANS = {
    "one size": {"model": "gpt2", "tokens": "1B", "gpu": "L40S", "gpus": "1"},
    "hours": {"model": "Llama-3.1-8B", "tokens": "2B", "deadline": "24h", "gpu": "H100-SXM5-80GB"},
    "staged": {"model": "Llama-3.1-70B", "tokens": "1T", "deadline": "30d", "gpu": "H100,H200"},
    "three types": {"model": "Llama-3.1-8B", "tokens": "300B", "deadline": "9d", "gpu": "H100,A100,B200"},
    "unpriced": {"model": "gpt2", "tokens": "10B", "deadline": "3d", "gpu": "V100-PCIe-16GB"},
    "thousands": {"model": "Llama-3.1-405B", "tokens": "15T", "deadline": "120d", "gpu": "H100"},
}


@pytest.fixture(params=PLANS.values(), ids=PLANS, scope="module")
def fan(request):
    answer = respond(request.param, calibrate=False)
    assert answer.plan is not None
    return plan_figure(answer.plan)


def test_a_plan_s_labels_are_apart_and_whole(fan):
    assert collisions(fan) == []
    assert cut(fan) == []


def test_a_plan_s_axes_name_their_units_and_its_chosen_size(fan):
    time = fan.axes[0]
    assert time.get_ylabel() in {"time to finish (hours)", "time to finish (days)"}
    assert [axes.get_ylabel() for axes in fan.axes[1:]] in ([], ["cost (US dollars)"])
    assert fan.axes[-1].get_xlabel() == "number of GPUs"
    (star,) = [line for line in time.lines if line.get_marker() == "*"]
    assert star.get_xdata()[0] in fan.axes[-1].get_xticks()


@pytest.fixture(
    scope="module", params=[(SCALINGS, DEADLINES), (SCALINGS[:1], DEADLINES[:1])], ids=["all", "one"]
)
def replay(request):
    kinds, ranges = request.param
    draws = [Draw(deadlines=bounds, scaling=kind) for kind in kinds for bounds in ranges]
    return replay_figure(compare(read_trace(None), draws, ReplayRules(), None))


def test_a_replay_s_labels_are_apart_and_whole(replay):
    assert collisions(replay) == []
    assert cut(replay) == []


def test_a_replay_s_axes_name_their_units(replay):
    assert [(axes.get_xlabel(), axes.get_ylabel()) for axes in replay.axes] == [
        ("time since the first job (days)", "GPUs in use"),
        ("GPU-hours against static (%)", ""),
        ("deadlines missed (jobs)", ""),
    ]


def test_a_collision_and_a_cut_are_found():
    figure = Figure(figsize=(4, 3))
    figure.text(0.5, 0.5, "one")
    figure.text(0.51, 0.51, "other")
    figure.text(0.98, 0.2, "a long end")
    assert collisions(figure) == [("one", "other")]
    assert cut(figure) == ["a long end"]
