"""The stages of a plan, and what each must show."""

from dataclasses import replace

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.search.scale_up import stages
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Request, Staging

DAY = 86400.0
REQUEST = Request(
    architecture=lookup.model("meta-llama/Llama-3.1-8B"),
    workload=Workload(tokens=2e10, sequence_tokens=8192, global_batch_sequences=512),
    framework=framework("torchtitan"),
    clusters=(lookup.cluster("H100-SXM5-80GB"),),
    deadline_s=3 * DAY,
)


@pytest.fixture(scope="module")
def chosen():
    return size(replace(REQUEST, gpu_counts=(32,)))


def test_a_large_plan_grows_from_a_gpu_over_a_node(chosen):
    assert [stage.gpus for stage in stages(chosen)] == [1, 8, 32]


@pytest.mark.parametrize(
    ("gpus", "expected"), [(8, [1, 8]), (4, [1, 4]), (1, [1])], ids=["node", "part", "one"]
)
def test_a_small_plan_has_fewer_stages(chosen, gpus, expected):
    small = replace(chosen, option=replace(chosen.option, gpus=gpus))
    assert [stage.gpus for stage in stages(small)] == expected
    assert "step" in stages(small)[-1].must_show[0]


def test_the_slowest_step_that_passes_ends_the_run_at_the_deadline(chosen):
    option = replace(chosen.option, step_s=6.0, finish_s=2 * DAY, tokens_per_s=3e5)
    last = stages(replace(chosen, option=option))[-1]
    assert last.must_show[0] == "a step of at most 9s (predicted: 6s), that is 200k tokens/s"


def test_without_a_deadline_the_prediction_bounds_the_step(chosen):
    open_end = replace(chosen, request=replace(REQUEST, deadline_s=None))
    option = replace(chosen.option, step_s=6.0, sigma=0.0)
    assert "at most 6s (predicted: 6s)" in stages(replace(open_end, option=option))[-1].must_show[0]


def test_an_elastic_plan_looks_at_the_stated_times_and_names_its_reserve(chosen):
    staging = Staging(
        look_s=900.0,
        reserve_gpus=96,
        likely_gpus=48,
        likely_probability=0.8,
        probability=0.95,
        static_gpus=64,
        policy=(),
    )
    last = stages(replace(chosen, staging=staging))[-1]
    assert last.wall_s == 600 + 900
    assert "96 GPUs" in last.must_show[-1]


def test_a_stage_costs_its_gpus_for_its_time(chosen):
    priced = replace(chosen.option.cluster, price_usd_per_gpu_h=2.0)
    first = stages(replace(chosen, option=replace(chosen.option, cluster=priced)))[0]
    assert first.usd == pytest.approx(2.0 * first.wall_s / 3600)
