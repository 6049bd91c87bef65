"""Bytes of a layer's backward besides saved activations, computed by hand.

Legend: T tokens of a micro-batch, h hidden 8, f feed-forward width 16 (gated) or 32 (plain).
"""

import dataclasses

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.parameters import load_memory

T = 16
NET = Architecture(
    name="net", layers=4, hidden=8, ffn_hidden=16, heads=2, kv_heads=1, head_dim=4, vocab=32
)  # fmt: skip
GPT = dataclasses.replace(NET, ffn_hidden=32, gated_mlp=False)


def working_bytes(net=NET, profile="megatron-core", **layout):
    """The bytes of the first of two stages, which has no loss."""
    case = Case(
        architecture=net,
        workload=Workload(tokens=1e9, sequence_tokens=T, global_batch_sequences=64),
        cluster=lookup.cluster("H100-SXM5-80GB"),
        framework=framework(profile),
        layout=Layout(pp=2, micro_batches=2, **layout),
    )
    return float(device_memory.stage_memory(Cases.of(case), load_memory(), np.asarray(0)).working_bytes)


@pytest.mark.parametrize(
    ("changes", "per_token"),
    [
        ({}, 2 * 16 + 6 * 8),  # a fused kernel writes over what it saved
        ({"profile": "nanotron"}, 6 * 16 + 6 * 8),
        ({"profile": "nanotron", "net": GPT}, 4 * 32 + 6 * 8),
        ({"tp": 2}, 2 * 16 / 2 + 6 * 8),
        ({"tp": 2, "sequence_parallel": True}, 2 * 16 / 2 + 6 * 8 / 2),
    ],
    ids=["fused", "one kernel an operation", "plain", "tensor-parallel", "sequence-parallel"],
)
def test_the_backward_of_a_layer_holds_the_gradients_of_its_mlp(changes, per_token):
    """6h: the layer's output, the MLP's input, the residual; the rest: the activation and its inputs."""
    assert working_bytes(**changes) == T * per_token


def test_experts_also_hold_gradients_of_what_they_receive_and_return():
    net = dataclasses.replace(NET, experts=8, top_k=2, expert_ffn_hidden=4, shared_experts=1)
    visits = 2 * load_memory().expert_imbalance
    wanted = T * (2 * 4 * (visits + 1) + 6 * 8 + 4 * 8 * visits)
    assert working_bytes(net) == pytest.approx(wanted, rel=1e-12)
