"""Every model of the catalog under a few layouts: no layout crashes the estimates, none gives nonsense."""

import dataclasses

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Method, Recompute, Workload
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.step import step_time

CLUSTER = lookup.cluster("H100", gpus_per_node=8)
FRAMEWORK = lookup.framework("megatron-core")
LAYOUTS = {
    "one GPU": Layout(dp=1),
    "zero-3": Layout(dp=8, sharding=Sharding.ZERO3, recompute=Recompute.FULL),
    "tensor and context": Layout(dp=1, tp=4, cp=2, sequence_parallel=True, recompute=Recompute.SELECTIVE),
    "pipeline": Layout(dp=2, pp=4, micro_batches=8),
    "experts": Layout(dp=8, ep=8, sharding=Sharding.ZERO1),
}


def case(network: Architecture, layout: Layout, method: Method) -> Case:
    tokens = network.fixed_tokens or 4096
    workload = Workload(tokens=1e9, sequence_tokens=tokens, global_batch_sequences=16, method=method)
    return Case(architecture=network, workload=workload, cluster=CLUSTER, framework=FRAMEWORK, layout=layout)


@pytest.mark.parametrize("method", [Method.PRETRAIN, Method.LORA], ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_model_has_a_finite_time_and_memory_under_every_layout(name: str, method: Method) -> None:
    networks = lookup.models()
    cases = Cases.stack(case(network, LAYOUTS[name], method) for network in networks)
    seconds, held = step_time.estimate(cases).total_s, device_memory.estimate(cases).device_bytes
    wrong = [
        network.name
        for network, s, b in zip(networks, np.broadcast_to(seconds, len(networks)), held, strict=True)
        if not (0 < s < 1e6 and 0 < b < 1e14)
    ]
    assert wrong == []


def seconds(network: Architecture, tokens: int) -> float:
    """Seconds of a step of 2**17 tokens in sequences of that length."""
    one = case(network, Layout(tp=8, micro_batches=2**17 // tokens), Method.PRETRAIN)
    workload = dataclasses.replace(
        one.workload, sequence_tokens=tokens, global_batch_sequences=2**17 // tokens
    )
    one = dataclasses.replace(one, workload=workload)
    return float(step_time.estimate(Cases.of(one)).total_s)


@pytest.mark.parametrize("name", ["Qwen3-Next 80B-A3B", "Nemotron-H 8B", "MiniMax-Text-01 456B-A46B"])
def test_a_hybrid_grows_less_with_the_sequence_than_the_same_layers_with_full_attention(name: str) -> None:
    hybrid = lookup.model(name)
    full = dataclasses.replace(hybrid, attention_free_layers=0, linear_layers=0)
    assert seconds(hybrid, 2**17) / seconds(hybrid, 4096) < 0.6 * seconds(full, 2**17) / seconds(full, 4096)
