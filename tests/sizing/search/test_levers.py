"""Levers: changes that need fewer GPUs or less money, or make a plan possible."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightsizer_engine import units
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.search import levers as levers_module
from rightsizer_engine.search.levers import Lever, lever_text, levers
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan, Plan, Request

DAY = 86400.0


def _request(
    model="meta-llama/Llama-3.1-8B",
    *,
    days: float | None = 3.0,
    name="torchtitan",
    gpu="H100",
    tokens=100e9,
    sequence=8192,
    batch=512,
    method=Method.PRETRAIN,
    precision=Precision.BF16,
    **changes,
):
    workload = Workload(
        tokens=tokens,
        sequence_tokens=sequence,
        global_batch_sequences=batch,
        method=method,
        precision=precision,
    )
    return Request(
        architecture=lookup.model(model),
        workload=workload,
        framework=framework(name),
        clusters=(lookup.cluster(gpu),),
        deadline_s=None if days is None else days * DAY,
        **({"max_gpus": 128} | changes),
    )


refused = st.builds(
    _request,
    st.sampled_from(["gpt2", "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-405B"]),
    days=st.floats(0.001, 3),
    tokens=st.floats(1e9, 1e13),
    name=st.sampled_from(["torchtitan", "megatron", "ddp", "accelerate"]),
    gpu=st.sampled_from(["H100", "A100-SXM4-40GB", "RTX 4090", "V100"]),
    batch=st.integers(1, 300),
    method=st.sampled_from([Method.PRETRAIN, Method.QLORA]),
    precision=st.sampled_from([Precision.BF16, Precision.FP8]),
    max_gpus=st.integers(1, 16),
)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request_=refused)
def test_a_refusal_always_has_a_lever(request_):
    answer = size(request_)
    if isinstance(answer, NoPlan):
        assert levers(answer)


NO_PLANS = {
    "memory": _request("meta-llama/Llama-3.1-405B", name="ddp"),
    "one GPU": _request(gpu_counts=(1,), may_idle=True),
    "half nodes": _request(gpu_counts=(12,), may_idle=True),
    "budget": _request(max_usd=100.0),
    "method": _request(name="megatron", method=Method.QLORA),
    "pinned": _request(pinned={"tp": 3}),
    "limits": _request(min_gpus=64, max_gpus=32),
    "batch": _request("gpt2", batch=1, min_gpus=8, name="ddp", sequence=1024, days=300),
    "precision": _request(gpu="A100", precision=Precision.FP8),
    "deadline": _request(days=1 / DAY),
    "one sequence": _request("meta-llama/Llama-3.1-405B", method=Method.QLORA, batch=1, max_gpus=12),
}


@pytest.mark.parametrize("request_", NO_PLANS.values(), ids=NO_PLANS)
def test_every_kind_of_refusal_has_a_lever_that_is_a_plan(request_):
    answer = size(request_)
    assert isinstance(answer, NoPlan)
    found = levers(answer)
    assert found
    assert all(lever.option.gpus > 0 and lever.change in lever_text(lever) for lever in found)


def test_a_longer_deadline_that_is_named_is_enough():
    refused_ = _request(days=1.0, max_gpus=64)
    (longer,) = [lever for lever in levers(size(refused_)) if lever.change == "allow more time"]
    found = size(replace(refused_, deadline_s=longer.option.finish_at_confidence_s))
    assert isinstance(found, Plan)


@pytest.mark.parametrize("tokens", [1e12, 1e15, 1e18])
def test_a_longer_deadline_is_named_only_where_it_can_be_written(tokens):
    found = levers(size(_request(tokens=tokens, days=30.0, max_gpus=8)))
    named = [lever.flag.partition(" ")[2] for lever in found if lever.change == "allow more time"]
    assert len(named) == (tokens < 1e15)
    assert all(units.parse_duration_s(each) > 30 * DAY for each in named)


def test_levers_are_sorted_by_worth_and_save_something():
    answer = size(_request())
    found = levers(answer)
    assert [lever.worth for lever in found] == sorted((lever.worth for lever in found), reverse=True)
    assert all(lever.gpus_saved > 0 or (lever.usd_saved or 0) > 0 for lever in found)
    assert {"allow a quarter more time", "accept less certainty"} <= {lever.change for lever in found}


def test_a_measurement_saves_what_the_deviation_costs():
    answer = size(_request())
    (probe,) = [lever for lever in levers(answer) if lever.flag == "rightsizer probe"]
    assert probe.option.gpus < answer.option.gpus


def test_naming_the_framework_is_a_lever_only_if_it_was_assumed():
    def named(days, assumed):
        found = levers(size(_request(days=days, framework_assumed=assumed)))
        return "--framework torchtitan" in {lever.flag for lever in found}

    # a narrower interval need not save a node at each of them
    saving = next(days for days in (2.5, 3.0, 3.5) if named(days, assumed=True))
    assert not named(saving, assumed=False)


@pytest.mark.parametrize(
    ("name", "gpu", "offered"),
    [("torchtitan", "H100", True), ("deepspeed", "H100", False), ("torchtitan", "A100", False)],
)
def test_fp8_is_a_lever_where_the_gpu_and_the_stack_have_it(name, gpu, offered):
    found = levers(size(_request(name=name, gpu=gpu)))
    assert ("--precision fp8" in {lever.flag for lever in found}) is offered


def test_the_number_of_requests_planned_is_bounded():
    changes = list(levers_module._single_changes(size(_request(framework_assumed=True))))
    assert len(changes) <= levers_module.MOST_VARIANTS


def test_a_lever_reads_as_a_line():
    option = size(_request()).option
    lever = Lever(
        change="use x", flag="--x", option=replace(option, gpus=64, cost_usd=900.0, finish_s=3600.0)
    )
    assert lever_text(lever) == "use x (--x): 64 H100-SXM5-80GB, $900, done in 1h"
    saved = replace(lever, gpus_saved=8, usd_saved=-100.0)
    assert "64 H100-SXM5-80GB (-8), $900 (+$100)" in lever_text(saved)
