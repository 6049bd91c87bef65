"""Bytes of low-rank adapters and their frozen base on one GPU."""

import dataclasses

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import LossKernel, Method, Workload
from rightsizer_engine.estimate.memory import device_memory

DENSE, SPARSE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B"


def held(model=DENSE, *, profile="peft", layout=None, sequence=2048, **changes):
    """The memory of a LoRA run on one H100."""
    work = Workload(method=Method.LORA, tokens=1e9, sequence_tokens=sequence, global_batch_sequences=1)
    case = Case(
        architecture=lookup.model(model),
        workload=dataclasses.replace(work, **changes),
        cluster=lookup.cluster("H100-SXM5-80GB", gpus_per_node=1),
        framework=framework(profile),
        layout=layout or Layout(micro_batch=1, micro_batches=1),
    )
    return device_memory.estimate(Cases.of(case))


def states(*args, **changes):
    return float(np.asarray(held(*args, **changes).optimizer_bytes))


def weights(*args, **changes):
    return float(np.asarray(held(*args, **changes).weights_bytes))


def test_a_base_that_is_cast_at_each_use_stays_in_32_bits():
    parameters = 8.03e9
    assert weights(profile="peft") == pytest.approx(2 * parameters, rel=0.01)
    assert weights(profile="fsdp2") == pytest.approx(4 * parameters, rel=0.01)
    assert weights(profile="fsdp2", frozen_bits=16) == pytest.approx(weights(profile="peft"), rel=1e-9)


def test_four_adapters_at_once_hold_four_times_the_states_of_one():
    assert states(lora_adapters=4) == pytest.approx(4 * states())


def test_adapters_on_experts_are_as_many_as_the_experts():
    """Rank 16 on three matrices of 2,048 x 768 in each of 128 experts and 48 layers, 8 bytes of moments."""
    added = states(SPARSE, lora_targets="all+experts") - states(SPARSE, lora_targets="all")
    assert added == pytest.approx(48 * 128 * 3 * 16 * (2048 + 768) * 8)
    assert states(DENSE, lora_targets="all+experts") == states(DENSE, lora_targets="all")


def test_a_sparse_layer_has_no_dense_mlp_to_adapt():
    assert states(SPARSE, lora_targets="all") == states(SPARSE, lora_targets="attention")


def test_a_loss_fused_with_the_head_follows_the_hidden_width_and_not_the_vocabulary():
    """Llama's 128k words and Llama 2's 32k at the same width of 4,096."""
    large, small = (
        held(model, loss=LossKernel.FUSED, sequence=32768).loss_bytes
        for model in (DENSE, "meta-llama/Llama-2-7b-hf")
    )
    assert float(large) == pytest.approx(float(small))
    assert float(held(loss=LossKernel.EAGER, sequence=32768).loss_bytes) > 10 * float(large)
