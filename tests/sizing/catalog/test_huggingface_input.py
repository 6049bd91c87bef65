from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rightsizer_engine.catalog.huggingface import from_config, model_types
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.errors import InputError, RightsizerError, UnsupportedError

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
}
KEYS = (
    *LLAMA,
    *("head_dim", "n_embd", "n_layer", "n_head", "d_model", "num_layers", "num_experts", "num_local_experts"),
    *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank", "qk_nope_head_dim"),
    *("qk_rope_head_dim", "v_head_dim", "sliding_window", "layer_types", "text_config", "vision_config"),
    "quantization_config",
    *("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "patch_size"),
    *(
        "decoder_ffn_dim",
        "encoder_ffn_dim",
        "mlp_only_layers",
        "sliding_window_pattern",
        "image_size",
        "depth",
        "embed_dim",
    ),
    *(
        "layers_block_type",
        "hybrid_override_pattern",
        "linear_attn_config",
        "full_attn_idxs",
        "mamba_n_heads",
    ),
    *("mamba_d_head", "mamba_d_ssm", "attn_layer_indices", "attn_type_list", "mlp_layer_types"),
    *(
        "tie_word_embeddings",
        "attention_bias",
        "multi_query",
        "shared_expert_intermediate_size",
        "attn_config",
    ),
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**70)
    | st.sampled_from([1, 2, 4, 8, 64, 4096])
    | st.floats()
    | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner)
    ),
    max_leaves=20,
)
KINDS = st.sampled_from(model_types())
CONFIGS = st.builds(
    lambda kind, values: {**values, "model_type": kind},
    KINDS | st.text(max_size=5),
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=20),
)


@settings(max_examples=40, deadline=None)
@given(config=CONFIGS)
def test_any_config_is_an_architecture_or_a_clear_error(config: Mapping[str, object]) -> None:
    try:
        network = from_config(config)
    except RightsizerError:
        return
    assert isinstance(network, Architecture)
    assert 0 <= network.parameters_active <= network.parameters_total


@settings(max_examples=40, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3), kind=st.sampled_from(model_types())
)
def test_a_broken_config_is_an_architecture_or_a_clear_error(changes: dict[str, object], kind: str) -> None:
    try:
        network = from_config(LLAMA | changes | {"model_type": kind})
    except RightsizerError:
        return
    assert network.parameters_active <= network.parameters_total < 1e30


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", None),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("hidden_size", 4096.5),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**9),
        ("num_key_value_heads", 5),
        ("vocab_size", -1),
        ("tie_word_embeddings", "yes"),
        ("layer_types", "full"),
    ],
)
def test_a_wrong_key_is_named_with_its_value(key: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        from_config(LLAMA | {"sliding_window": 4096, key: value})
    assert caught.value.field == f"model.config.{key}"
    assert caught.value.value == value


@pytest.mark.parametrize("config", [[], "llama", None, 3], ids=repr)
def test_something_that_is_no_mapping_is_refused(config: object) -> None:
    with pytest.raises(InputError, match="config"):
        from_config(config)  # type: ignore[arg-type]


def test_an_unknown_type_is_read_by_its_dimensions_with_a_note() -> None:
    network = from_config(LLAMA | {"model_type": "newllama"})
    assert network.parameters_total == from_config(LLAMA).parameters_total
    assert "guess" in network.doubt


def test_an_unknown_type_needs_only_its_dimensions() -> None:
    network = from_config(
        {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 99}
    )
    assert (network.ffn_hidden, network.kv_heads, network.head_dim) == (2048, 8, 64)
    assert "guess" in network.doubt


def test_an_unknown_type_without_a_dimension_is_refused_with_its_name() -> None:
    with pytest.raises(InputError, match="num_hidden_layers"):
        from_config({"model_type": "new", "hidden_size": 4096})


def test_layers_that_are_no_attention_are_refused_in_any_type() -> None:
    with pytest.raises(UnsupportedError, match="lists layers retention"):
        from_config(LLAMA | {"layer_types": ["full_attention", "retention"]})


def test_a_quantised_checkpoint_is_noted() -> None:
    network = from_config(LLAMA | {"quantization_config": {"quant_method": "awq", "bits": 4}})
    assert network.parameters_total == from_config(LLAMA).parameters_total
    assert "quantised (awq)" in network.doubt


def test_an_unknown_hybrid_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="mamba_d_state"):
        from_config(LLAMA | {"model_type": "zamba", "mamba_d_state": 64})


def test_dense_layers_in_the_middle_of_a_mixture_are_refused() -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [3]}
    with pytest.raises(UnsupportedError, match="mlp_only_layers"):
        from_config(LLAMA | experts | {"model_type": "qwen3_moe"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 4096}, (4096, 32)),
        ({"model_type": "mistral", "sliding_window": None}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 4096}, (0, 0)),
        ({"model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}, (4096, 32)),
        ({"model_type": "gemma2", "sliding_window": 4096}, (4096, 16)),
        ({"model_type": "gemma3_text", "sliding_window": 1024}, (1024, 27)),
        ({"model_type": "llama4_text", "attention_chunk_size": 8192}, (8192, 24)),
        (
            {
                "model_type": "olmo3",
                "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            (64, 1),
        ),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else "",
)
def test_the_window_covers_the_layers_that_use_it(
    changes: dict[str, object], expected: tuple[int, int]
) -> None:
    network = from_config(LLAMA | changes)
    assert (network.sliding_window, network.sliding_layers) == expected


def test_the_name_is_the_given_one_else_the_configs_own() -> None:
    assert from_config(LLAMA, name="mine").name == "mine"
    assert from_config(LLAMA | {"_name_or_path": "acme/llama"}).name == "acme/llama"
    assert from_config(LLAMA).name == "llama"
