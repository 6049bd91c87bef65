"""The cost of a frozen reference model in training on preferences (DPO). No published run checks it."""

from dataclasses import replace

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import LossKernel, Method, Recompute, Workload
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.step import step_time
from rightsizer_engine.estimate.step.inputs import step_inputs
from rightsizer_engine.estimate.step.layer_time import layer_time

LLAMA = lookup.model("meta-llama/Llama-3.1-8B")


def case(*, reference_model: bool, dp: int = 8, profile: str = "trl", **work: object) -> Case:
    made = Workload(
        method=Method.FINETUNE,
        tokens=1e9,
        sequence_tokens=2048,
        global_batch_sequences=64,
        reference_model=reference_model,
    )
    return Case(
        architecture=LLAMA,
        workload=replace(made, **work),
        cluster=lookup.cluster("H100-SXM5-80GB"),
        framework=framework(profile),
        layout=Layout(
            dp=dp, sharding=Sharding.ZERO3, micro_batch=2, micro_batches=4, recompute=Recompute.FULL
        ),
    )


def held(**asked: object) -> device_memory.Memory:
    return device_memory.estimate(Cases.of(case(**asked)))  # type: ignore[arg-type]


def test_a_layer_goes_forward_twice_and_backward_once() -> None:
    alone, beside = (
        layer_time(step_inputs(Cases.of(case(reference_model=on)), step_time.load_step_time()))
        for on in (False, True)
    )
    assert beside.forward_s == pytest.approx(2 * alone.forward_s)
    assert beside.backward_s == pytest.approx(alone.backward_s)
    for each in (alone, beside):
        assert sum(each.causes.values()) == pytest.approx(each.forward_s + each.backward_s)


def test_with_full_recompute_a_step_takes_about_a_quarter_longer() -> None:
    alone, beside = (step_time.estimate(Cases.of(case(reference_model=on))) for on in (False, True))
    assert 1.15 < float(beside.total_s / alone.total_s) < 1.3
    assert float(beside.total_s) == pytest.approx(sum(float(v) for v in beside.causes.values()))


@pytest.mark.parametrize("dp", [1, 8])
def test_its_weights_take_16_bits_each_and_are_sharded_as_the_model_s(dp: int) -> None:
    alone, beside = (held(reference_model=on, dp=dp) for on in (False, True))
    parameters = 8.03e9
    assert float(beside.weights_bytes - alone.weights_bytes) == pytest.approx(2 * parameters / dp, rel=0.01)
    for name in ("gradients_bytes", "optimizer_bytes"):
        assert getattr(beside, name) == getattr(alone, name)


@pytest.mark.parametrize("method", [Method.LORA, Method.QLORA])
def test_beside_adapters_the_base_is_the_reference(method: Method) -> None:
    alone, beside = (held(reference_model=on, method=method) for on in (False, True))
    assert beside.weights_bytes == alone.weights_bytes


def test_its_logits_are_held_too_and_no_cross_entropy_kernel_helps_unless_stated() -> None:
    logits = 2 * 2048 * LLAMA.vocab
    eager = [held(reference_model=on, loss=LossKernel.EAGER) for on in (False, True)]
    assert float(np.subtract(*(each.loss_bytes for each in reversed(eager)))) == pytest.approx(2 * logits)
    usual = held(reference_model=True, profile="unsloth", method=Method.LORA)
    fused = held(reference_model=True, profile="unsloth", method=Method.LORA, loss=LossKernel.FUSED)
    assert float(usual.loss_bytes) > float(fused.loss_bytes) + 2 * logits
