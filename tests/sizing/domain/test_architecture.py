import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain import architecture
from rightsizer_engine.domain.architecture import Architecture, Family
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.flop import flop_per_token

LLAMA = lookup.model("Llama 3.1 8B")
FUNCTIONS = (
    "attention_parameters",
    "cross_attention_parameters",
    "dense_ffn_parameters",
    "expert_parameters",
    "shared_expert_parameters",
    "active_expert_parameters",
    "router_parameters",
    "layers_moe",
    "layers_dense",
    "embedding_parameters",
    "head_parameters",
    "head_matmul_parameters",
    "encoder_parameters",
    "parameters_total",
    "parameters_active",
    "parameters_matmul_active",
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_columns_of_all_models_equal_each_model_s_values(name: str) -> None:
    count = getattr(architecture, name)
    together = count(Columns.stack(lookup.models()))
    assert np.array_equal(together, [float(count(one)) for one in lookup.models()])


def test_flops_of_columns_are_those_of_each_model() -> None:
    together = flop_per_token(Columns.stack(lookup.models()), 2048)
    assert np.allclose(together, [float(flop_per_token(one, 2048)) for one in lookup.models()])


def test_parts_sum_to_the_whole() -> None:
    parts = LLAMA.layers * (
        architecture.attention_parameters(LLAMA)
        + architecture.dense_ffn_parameters(LLAMA)
        + LLAMA.per_layer_parameters
    )
    whole = parts + architecture.embedding_parameters(LLAMA) + architecture.head_parameters(LLAMA)
    assert float(whole) + LLAMA.extra_parameters == LLAMA.parameters_total


@pytest.mark.parametrize(
    ("name", "moe", "dense"),
    [
        ("Llama 3.1 8B", 0, 32),
        ("Mixtral 8x7B", 32, 0),
        ("DeepSeek-V3 671B", 58, 3),
        ("Llama 4 Maverick 17B-128E", 24, 24),
    ],
)
def test_layers_are_dense_or_have_experts(name: str, moe: int, dense: int) -> None:
    network = lookup.model(name)
    assert (architecture.layers_moe(network), architecture.layers_dense(network)) == (moe, dense)


def test_full_attention_costs_12_layers_width_context_beside_6n() -> None:
    expected = 6 * LLAMA.parameters_matmul_active + 12 * 32 * 4096 * 8192
    assert float(flop_per_token(LLAMA, 8192, causal=False)) == pytest.approx(expected)


def test_the_causal_mask_halves_attention_alone() -> None:
    weights = 6 * LLAMA.parameters_matmul_active
    full, masked = (float(flop_per_token(LLAMA, 8192, causal=c)) - weights for c in (False, True))
    assert masked == pytest.approx(full / 2)


def test_a_window_as_long_as_the_sequence_changes_nothing() -> None:
    windowed = dataclasses.replace(LLAMA, sliding_window=4096, sliding_layers=32)
    assert float(flop_per_token(windowed, 4096)) == pytest.approx(float(flop_per_token(LLAMA, 4096)))
    assert flop_per_token(windowed, 32768) < flop_per_token(LLAMA, 32768)


def test_an_encoder_sees_every_position() -> None:
    bert = lookup.model("BERT-base")
    assert float(flop_per_token(bert, 512)) == float(flop_per_token(bert, 512, causal=False))


def test_an_encoders_cost_is_spread_over_the_decoders_tokens() -> None:
    whisper = lookup.model("openai/whisper-large-v2")
    per_sequence = [float(flop_per_token(whisper, tokens)) * tokens for tokens in (1, 448)]
    assert per_sequence[0] > 1500 * 6 * float(architecture.encoder_parameters(whisper))
    assert per_sequence[1] > per_sequence[0]


def test_a_multi_token_prediction_layer_is_counted_if_requested() -> None:
    v3 = lookup.model("DeepSeek-V3 671B")
    added = dataclasses.replace(v3, mtp_layers=1).parameters_total - v3.parameters_total
    assert added == pytest.approx(11.5e9, rel=0.02)  # 685B on disk, with embedding and head twice


NETWORKS = st.builds(
    lambda heads, experts, **rest: Architecture(
        name="any",
        hidden=64 * heads,
        ffn_hidden=256 * heads,
        heads=heads,
        kv_heads=heads,
        head_dim=64,
        vocab=1000,
        experts=experts,
        top_k=min(2, experts),
        **rest,
    ),
    st.integers(1, 128),
    st.sampled_from([0, 2, 8, 256]),
    layers=st.integers(1, 200),
    moe_layer_step=st.integers(1, 4),
    dense_layers=st.integers(0, 200),
    family=st.sampled_from(Family),
)


@given(network=NETWORKS)
def test_active_never_exceeds_total_and_layers_add_up(network: Architecture) -> None:
    assert 0 < network.parameters_active <= network.parameters_total
    assert 0 <= architecture.layers_moe(network) <= network.layers
    assert flop_per_token(network, 128) >= 6 * network.parameters_matmul_active * (1 - 1e-12)
