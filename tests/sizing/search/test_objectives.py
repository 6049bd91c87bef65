"""The search's objectives, and exact numbers of GPUs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.search.selection import SIMPLER_WITHIN
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Binding, NoPlan, Objective, Plan, Request

DAY = 86400.0
SETTINGS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _request(model="meta-llama/Llama-3.1-8B", *, name="torchtitan", batch=512, days=None, **changes):
    return Request(
        architecture=lookup.model(model),
        workload=Workload(tokens=100e9, sequence_tokens=8192, global_batch_sequences=batch),
        framework=framework(name),
        clusters=(lookup.cluster("H100"),),
        deadline_s=None if days is None else days * DAY,
        **({"max_gpus": 512} | changes),
    )


models = st.sampled_from(
    ["meta-llama/Llama-3.1-8B", "meta-llama/Llama-2-70b-hf", "mistralai/Mixtral-8x7B-v0.1"]
)
requests = st.builds(
    _request, models, name=st.sampled_from(["torchtitan", "megatron"]), batch=st.integers(100, 1200)
)


@pytest.mark.slow
@SETTINGS
@given(request_=requests, days=st.floats(1.0, 60.0), longer=st.floats(1.0, 3.0))
def test_a_longer_deadline_never_costs_more(request_, days, longer):
    asked = replace(request_, objective=Objective.COST)
    soon, late = (size(replace(asked, deadline_s=d * DAY), compared=False) for d in (days, days * longer))
    if isinstance(soon, Plan):
        assert isinstance(late, Plan)
        assert late.option.cost_usd <= soon.option.cost_usd * (1 + 1e-9)


@SETTINGS
@given(request_=requests, nodes=st.integers(1, 60), more=st.integers(1, 4))
def test_more_gpus_are_never_slower(request_, nodes, more):
    fewer, larger = (
        size(replace(request_, gpu_counts=(8 * n,), may_idle=True), compared=False)
        for n in (nodes, nodes + more)
    )
    if isinstance(fewer, Plan):
        assert isinstance(larger, Plan)
        within = fewer.option.finish_at_confidence_s * (1 + SIMPLER_WITHIN)
        assert larger.option.finish_at_confidence_s <= within


@pytest.mark.parametrize("objective", Objective)
def test_every_objective_meets_the_deadline(objective):
    answer = size(_request(days=5, objective=objective))
    assert isinstance(answer, Plan)
    assert answer.option.finish_at_confidence_s <= 5 * DAY


def test_each_objective_is_best_at_its_own():
    found = {o: size(_request(days=20, objective=o)).option for o in Objective}
    assert found[Objective.GPUS].gpus == min(o.gpus for o in found.values())
    assert found[Objective.COST].cost_usd == min(o.cost_usd for o in found.values())
    assert found[Objective.TIME].finish_s == min(o.finish_s for o in found.values())


def test_without_a_deadline_the_objective_cost_takes_the_least_cost():
    quick, cheap = (size(_request(objective=o)) for o in (Objective.GPUS, Objective.COST))
    assert cheap.option.cost_usd < quick.option.cost_usd
    assert any("objective cost takes the cheapest" in reason for reason in quick.reasons)
    assert "fewest GPU-hours" in cheap.reasons[0]


def test_surplus_gpus_idle_with_a_reason():
    answer = size(_request(gpu_counts=(600,), may_idle=True, max_gpus=None))
    assert answer.option.gpus < 600
    idle = 600 - answer.option.gpus
    assert answer.reasons[0] == (
        f"600 asked; {answer.option.gpus} train, {idle} idle: no faster layout uses them"
    )


def test_an_exact_count_that_may_not_idle_is_kept():
    assert size(_request(gpu_counts=(600,), max_gpus=None)).option.gpus == 600


@pytest.mark.parametrize(("gpus", "nearest"), [(12, [8, 16]), (100, [96, 104]), (3, [2, 4])])
def test_a_count_that_makes_no_whole_nodes_is_answered_with_the_nearest(gpus, nearest):
    answer = size(_request(gpu_counts=(gpus,), may_idle=True))
    assert isinstance(answer, NoPlan)
    assert answer.binding == Binding.MAX_GPUS
    assert [option.gpus for option in answer.nearest] == nearest
    assert all(f" {size}" in answer.reason for size in nearest)


def test_one_gpu_that_is_too_small_is_named_as_requested():
    answer = size(_request(gpu_counts=(1,), may_idle=True))
    assert answer.binding == Binding.MEMORY
    assert answer.reason.endswith("1 GPU was asked for")
