"""A plan's other sizes, as the engine sees them once the present one was measured."""

import itertools
from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.reading import Phase, Reading
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.scaling import PlanScaling
from rightsizer_engine.resize.types import Action, History, Limits, Mode, Running
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request

DAY = 86400.0


@pytest.fixture(scope="module")
def planned():
    answer = size(
        Request(
            architecture=lookup.model("Llama 3.1 8B"),
            workload=Workload(tokens=20e9, sequence_tokens=8192, global_batch_sequences=128),
            framework=lookup.framework("torchtitan"),
            clusters=(lookup.cluster("H100-SXM5-80GB"),),
            deadline_s=3 * DAY,
            max_gpus=32,
            elastic=True,
        )
    )
    assert isinstance(answer, Plan)
    return answer, PlanScaling(request=answer.request, option=answer.option)


def test_sizes_move_with_the_measured_rate_and_others_are_less_sure(planned):
    answer, scaling = planned
    option = answer.option
    sizes = scaling.sizes(gpus=option.gpus, tokens_per_s=0.8 * option.tokens_per_s, steps=500)
    present = next(s for s in sizes if s.layout == option.layout)
    assert present.tokens_per_s == pytest.approx(0.8 * option.tokens_per_s)
    assert all(s.sigma > present.sigma for s in sizes if s.layout != option.layout)
    assert min(s.gpus for s in sizes) < option.gpus < max(s.gpus for s in sizes) <= 32


def test_more_gpus_are_never_more_than_proportionally_faster_in_the_same_layout(planned):
    answer, scaling = planned
    option = answer.option
    sizes = scaling.sizes(gpus=option.gpus, tokens_per_s=option.tokens_per_s, steps=500)
    alike = [s.tokens_per_s / s.gpus for s in sizes if s.in_place]
    assert len(alike) >= 2
    assert all(b <= a * 1.1 for a, b in itertools.pairwise(alike))


def test_a_resize_moves_no_states_into_host_memory_that_are_not_there(planned):
    answer, _ = planned
    stack = replace(answer.request, framework=lookup.framework("deepspeed"), deadline_s=None)
    fixed, away = (size(replace(stack, gpu_counts=(n,))).option for n in (8, 1))
    assert (bool(fixed.layout.offload), bool(away.layout.offload)) == (False, True)
    sizes = PlanScaling(request=stack, option=fixed).sizes(gpus=8, tokens_per_s=fixed.tokens_per_s, steps=500)
    assert not any(size.layout.offload for size in sizes)
    grown = PlanScaling(request=stack, option=away).sizes(gpus=1, tokens_per_s=away.tokens_per_s, steps=500)
    assert any(size.layout.offload for size in grown)
    assert any(not size.layout.offload for size in grown)


READING = Reading(
    window_s=7200.0, age_s=10.0, coverage=1.0, samples=240, window_steps=500, phase=Phase.TRAINING,
    others_waiting=True, checkpoint_age_s=60.0,
)  # fmt: skip
CASES = {
    "slower than planned: grows": (0.5, 3.0, {Action.GROW}),
    "as planned: kept": (1.0, 3.0, {Action.KEEP}),
    "far more time than it takes: shrinks": (1.0, 30.0, {Action.SHRINK}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_is_resized_at_its_measured_rate(planned, case):
    ratio, days, actions = case
    answer, scaling = planned
    option = answer.option
    found = decide(
        replace(READING, gpus=option.gpus, tokens_per_s=ratio * option.tokens_per_s),
        Running(
            gpus=option.gpus,
            layout=option.layout,
            scaling=scaling,
            tokens_left=18e9,
            deadline_left_s=days * DAY,
            trained_s=1e5,
        ),
        Limits(mode=Mode.AUTO, max_gpus=32, checkpoint_interval_s=1800.0),
        History(),
        now_s=1e6,
    )
    assert found.action in actions, found.reason
    if found.act:
        assert found.option is not None
        assert found.option.gpus == found.gpus
