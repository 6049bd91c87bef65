"""Bytes of a quantised base: what is quantised, what is not, and what sharding leaves whole."""

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import embedding_parameters, head_parameters
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Method, Quantiser, Workload
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.work import quantised_bytes

MODEL = lookup.model("Llama-3-8B")
ENDS = float(embedding_parameters(MODEL) + head_parameters(MODEL))
LAYERS = MODEL.parameters_total - ENDS


def cases(profile, *, dp=1, sharding=Sharding.NONE, **work):
    return Cases.of(
        Case(
            architecture=MODEL,
            workload=Workload(
                tokens=1e9, sequence_tokens=512, global_batch_sequences=8, lora_rank=1, **work
            ),
            cluster=lookup.cluster("H100-SXM5-80GB"),
            framework=framework(profile),
            layout=Layout(dp=dp, sharding=sharding),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("profile", "changes", "weight", "kept"),
    [
        ("peft", {}, 0.5 + 4 / 64, 4),
        ("axolotl", {}, 0.5 + (1 + 4 / 256) / 64, 2),
        ("peft", {"quantiser": Quantiser.GPTQ}, 0.5 + (2 + 0.5) / 128, 2),
        ("peft", {"quantised_bits": 8}, 1, 4),
    ],
    ids=["NF4", "doubly quantised, not cast", "GPTQ", "eight bits"],
)
def test_qlora_quantises_all_but_the_embedding_and_the_head(profile, changes, weight, kept):
    qlora = cases(profile, method=Method.QLORA, **changes)
    found = float(device_memory.estimate(qlora).weights_bytes)
    assert float(quantised_bytes(qlora)) == pytest.approx(weight)
    assert found == pytest.approx(weight * LAYERS + kept * ENDS, rel=0.002)  # adapters of rank 1 beside


@pytest.mark.parametrize("profile", ["llama-factory", "trl", "peft"])
def test_adapters_freeze_a_base_in_16_bits_though_whole_models_train_in_32(profile):
    found = float(device_memory.estimate(cases(profile, method=Method.LORA)).weights_bytes)
    assert found == pytest.approx(2 * MODEL.parameters_total, rel=0.002)


def test_sharding_leaves_the_scales_of_bitsandbytes_whole_and_divides_those_of_gptq():
    sharded = {"dp": 4, "sharding": Sharding.ZERO3, "method": Method.QLORA}
    nf4 = float(device_memory.estimate(cases("peft", **sharded)).weights_bytes)
    gptq = float(device_memory.estimate(cases("peft", quantiser=Quantiser.GPTQ, **sharded)).weights_bytes)
    assert nf4 == pytest.approx((0.5 * LAYERS + 4 * ENDS) / 4 + 4 / 64 * LAYERS, rel=0.01)
    assert gptq == pytest.approx(((0.5 + 2.5 / 128) * LAYERS + 2 * ENDS) / 4, rel=0.01)


def test_gptq_unpacks_a_matrix_in_torch_with_two_copies_of_32_bits():
    qlora = [cases("peft", method=Method.QLORA, quantiser=quantiser) for quantiser in Quantiser]
    nf4, gptq = (float(device_memory.estimate(c).unsharded_bytes) for c in qlora)
    assert gptq == pytest.approx(5 * nf4)
