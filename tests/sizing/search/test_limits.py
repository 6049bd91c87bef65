"""More GPUs allowed: never a refusal, never a worse answer by the objective that chose it."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.framework import assumed_frameworks, framework
from rightsizer_engine.domain.workload import Method, Workload
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Objective, Plan, Request

HOUR, DAY = 3600.0, 86400.0
TIES = 1.02
"""A simpler layout wins within 2 %."""
STACKS = ("deepspeed", "accelerate", "torchtitan", "megatron", "torchtune", "ddp", None)
SETTINGS = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _request(model, *, tokens, name, gpu, sequence=2048, batch=64, method=Method.FINETUNE, **changes):
    cluster = replace(lookup.cluster(gpu), inter_bytes_per_s=1.25e9)
    return Request(
        architecture=lookup.model(model),
        workload=Workload(
            tokens=tokens, sequence_tokens=sequence, global_batch_sequences=batch, method=method
        ),
        framework=framework(name or "torchtitan"),
        stacks=() if name else assumed_frameworks(decoder=True, adapters=False),
        clusters=(cluster,),
        **changes,
    )


requests = st.builds(
    _request,
    st.sampled_from(["Qwen/Qwen2-1.5B", "meta-llama/Llama-3.1-8B", "gpt2", "mistralai/Mixtral-8x7B-v0.1"]),
    tokens=st.floats(1e6, 1e10),
    name=st.sampled_from(STACKS),
    gpu=st.sampled_from(["A10", "RTX 4090", "A100-SXM4-40GB", "H100"]),
    sequence=st.sampled_from([512, 2048, 8192]),
    batch=st.integers(1, 300),
    method=st.sampled_from([Method.PRETRAIN, Method.FINETUNE]),
    objective=st.sampled_from(list(Objective)),
    deadline_s=st.one_of(st.none(), st.floats(HOUR, 60 * DAY)),
    elastic=st.booleans(),
)


def _worse(request: Request, fewer: Plan, more: Plan) -> str:
    """The way in which the result with the larger limit is worse by its objective; empty: not at all."""
    old, new = fewer.option, more.option
    if request.objective is Objective.TIME:
        due = (old.finish_s, new.finish_s) if request.elastic else (
            old.finish_at_confidence_s, new.finish_at_confidence_s
        )  # fmt: skip
        return f"finishes later: {due}" if due[1] > due[0] * TIES else ""
    paid = [option.gpus * option.finish_s / HOUR for option in (old, new)]
    if request.objective is Objective.COST:
        return f"costs more: {paid}" if paid[1] > paid[0] * TIES else ""
    if request.deadline_s is not None:
        return f"takes more GPUs: {old.gpus}, {new.gpus}" if new.gpus > old.gpus else ""
    dearer = paid[1] > paid[0] * TIES or (new.gpus > old.gpus and paid[1] >= paid[0])
    return f"takes {old.gpus} and {new.gpus} GPUs, {paid} GPU-hours" if dearer else ""


@SETTINGS
@given(request_=requests, limit=st.integers(1, 40), more=st.integers(1, 100))
def test_more_gpus_allowed_never_worsen_the_plan(request_, limit, more):
    fewer, larger = (size(replace(request_, max_gpus=most), compared=False) for most in (limit, limit + more))
    if isinstance(fewer, Plan):
        assert isinstance(larger, Plan), larger.reason
        assert _worse(request_, fewer, larger) == ""


SMALL = _request("Qwen/Qwen2-1.5B", tokens=10_000 * 2048, name="deepspeed", gpu="A10")
A10 = replace(SMALL.clusters[0], gpus_per_node=2)


@pytest.mark.parametrize("objective", Objective)
def test_a_second_node_behind_a_slow_network_is_not_taken(objective):
    asked = replace(SMALL, clusters=(A10,), objective=objective)
    two, four = (size(replace(asked, max_gpus=most)).option for most in (2, 4))
    assert two.layout == four.layout
    assert four.nodes == 1


def test_offloaded_or_not_the_fewest_gpus_that_meet_the_deadline_win():
    asked = replace(SMALL, clusters=(A10,), deadline_s=5 * HOUR, max_gpus=8)
    answer = size(asked).option
    assert answer.gpus == 1
    assert answer.layout.offload
    assert size(replace(asked, deadline_s=2 * HOUR)).option.gpus == 2


def test_states_in_host_memory_are_counted_for_each_node():
    """AdamW of 1.54e9 weights on one host: the 32-bit weights and two moments, beside 16-bit weights."""
    answer = size(replace(SMALL, clusters=(A10,), max_gpus=1))
    assert answer.option.host_bytes_per_node == pytest.approx((2 + 4 + 8) * 1.54e9, rel=0.05)
    assert any("of host memory on each node" in reason for reason in answer.reasons)
    assert size(_request("gpt2", tokens=1e8, name="ddp", gpu="H100")).option.host_bytes_per_node == 0.0


def test_a_resident_layout_wins_over_an_equally_fast_one_in_host_memory():
    answer = size(_request("gpt2", tokens=1e8, name="deepspeed", gpu="H100", deadline_s=DAY)).option
    assert answer.gpus == 1
    assert not answer.layout.offload


def test_without_a_deadline_host_memory_is_not_used_where_it_costs_much_more():
    slow = replace(lookup.cluster("A100"), gpu=replace(lookup.gpu("A100"), pcie_bytes_per_s=1e8))
    asked = _request("meta-llama/Llama-3.1-8B", tokens=1e7, name="deepspeed", gpu="A100", batch=8)
    answer = size(replace(asked, clusters=(slow,)), compared=False).option
    assert not answer.layout.offload
    assert answer.gpus > 1


def test_a_small_finetune_without_a_deadline_takes_one_gpu_and_lists_the_gain_of_more():
    asked = _request(
        "meta-llama/Llama-3.1-8B", tokens=10_000 * 2048, name="peft", gpu="RTX 4090", method=Method.LORA
    )
    answer = size(asked)
    assert answer.option.gpus == 1
    assert answer.reasons[0].startswith("no deadline given: the fewest GPUs that fit")
    sizes = [point.gpus for point in answer.curve]
    assert {1, 2, 4, 8, 16, 32, 64} <= set(sizes)


@pytest.mark.parametrize("tokens", [1e6, 1e9])
def test_start_up_weights_and_the_last_checkpoint_are_part_of_time_and_cost(tokens):
    asked = _request("meta-llama/Llama-3.1-8B", tokens=tokens, name="accelerate", gpu="H100")
    asked = replace(asked, reliability=replace(asked.reliability, failures_per_1000_node_days=1e-6))
    instant = replace(
        asked.reliability, start_s=0.0, checkpoint_bytes_per_s=1e30, checkpoint_bytes_per_s_per_node=1e30
    )
    paid, free = (
        size(replace(asked, gpu_counts=(8,), reliability=reliability)).option
        for reliability in (asked.reliability, instant)
    )
    parameters = 8.03e9
    around_s = asked.reliability.start_s + parameters * (2 + 14) / 1.2e9  # read 2 bytes each, write 14
    assert paid.finish_s - free.finish_s == pytest.approx(around_s, rel=0.02)
    assert paid.lost_by_cause["start_up"] == pytest.approx(around_s / paid.finish_s, rel=0.02)
    assert paid.goodput + sum(paid.lost_by_cause.values()) == pytest.approx(1)
    assert paid.cost_usd / paid.finish_s == pytest.approx(free.cost_usd / free.finish_s)
    assert paid.stepping == pytest.approx(free.stepping, abs=0.01)
