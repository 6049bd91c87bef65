from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.framework import assumed_frameworks, framework
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.observation import Observation
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.search.calibrate import calibration
from rightsizer_engine.search.size import size
from rightsizer_engine.search.stacks import best_stacks_first
from rightsizer_engine.search.types import NoPlan, Objective, Plan, Request

STACKS = assumed_frameworks(decoder=True, adapters=False)


@pytest.fixture
def asked():
    return Request(
        architecture=lookup.model("Llama 2 13B"),
        workload=Workload(tokens=300e9, sequence_tokens=4096, global_batch_sequences=1024),
        framework=STACKS[0],
        framework_assumed=True,
        stacks=STACKS,
        clusters=(lookup.cluster("A100-SXM4-80GB", max_gpus=1024),),
        deadline_s=30 * 86400.0,
        confidence=0.5,
    )


def test_the_best_stack_needs_no_more_gpus_than_any_other(asked):
    answer = size(asked)
    assert isinstance(answer, Plan)
    single = [size(replace(asked, framework=stack, stacks=())) for stack in STACKS]
    assert answer.option.gpus == min(one.option.gpus for one in single if isinstance(one, Plan))
    assert answer.request.framework in STACKS
    assert answer.request.stacks == ()


def test_the_comparison_is_among_the_reasons(asked):
    answer = size(asked)
    assert any(
        f"{answer.request.framework.name} is the fastest of 3 stacks" in reason for reason in answer.reasons
    )


def test_a_deadline_that_no_stack_meets_is_refused_for_the_fastest_one(asked):
    answer = size(replace(asked, deadline_s=3600.0))
    assert isinstance(answer, NoPlan)
    assert answer.request.framework.name == "megatron"
    assert answer.reason


def test_without_a_deadline_the_best_stack_takes_the_fewest_gpus_at_a_fair_cost(asked):
    open_ended = replace(asked, deadline_s=None)
    answer = size(open_ended, compared=False).option
    single = [size(replace(open_ended, framework=s, stacks=()), compared=False).option for s in STACKS]
    least = min(one.cost_usd for one in single)
    assert answer.gpus == min(one.gpus for one in single if one.cost_usd <= 1.5 * least)


def test_the_other_stacks_that_meet_the_request_follow_in_the_order_of_the_objective(asked):
    cheap = replace(asked, objective=Objective.COST)
    ranked = best_stacks_first(cheap, lambda one: size(one, compared=False))
    costs = [size(one, compared=False).option.cost_usd for one in ranked]
    assert len(costs) == len(STACKS)
    assert costs == sorted(costs)
    assert "is the fastest of 3 stacks" in ranked[0].notes[0]
    assert "is the first that meets the request at its confidence of 3 stacks" in ranked[1].notes[0]


def test_a_stack_that_the_user_has_measured_is_taken(asked):
    case = Case(
        architecture=asked.architecture,
        workload=asked.workload,
        cluster=asked.clusters[0],
        framework=framework("torchtitan"),
        layout=Layout(dp=8, micro_batches=64, sharding=Sharding.ZERO3),
    )
    measured = calibration([Observation(run="a", case=case, steps=100, step_s=60.0)])
    assert size(replace(asked, calibration=measured)).request.framework.name == "torchtitan"


def test_a_named_framework_is_not_compared(asked):
    answer = size(replace(asked, stacks=(), framework=framework("torchtitan"), framework_assumed=False))
    assert answer.request.framework.name == "torchtitan"
    assert not answer.request.notes
