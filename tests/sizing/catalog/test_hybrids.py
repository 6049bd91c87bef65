"""Hybrids and linear attention: configs as published, against the catalog's rows and the papers' counts."""

import dataclasses
import json
from pathlib import Path

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.huggingface import from_config
from rightsizer_engine.domain.flop import flop_per_token
from rightsizer_engine.domain.linear import delta_rule_flop, state_space_flop
from rightsizer_engine.errors import InputError

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text("utf-8"))
HYBRIDS = [
    name for name in CONFIGS if lookup.model(name).linear_layers and not lookup.model(name).encoder_layers
]


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_of_a_model_gives_its_row_of_the_catalog(name: str) -> None:
    read, row = from_config(CONFIGS[name]), lookup.model(name)
    assert dataclasses.replace(read, name=name, source=row.source) == row


@pytest.mark.parametrize(
    ("name", "attention", "linear", "feed_forward"),
    [
        ("Qwen/Qwen3-Next-80B-A3B", 12, 36, 48),
        ("Nemotron-H 8B", 4, 24, 24),
        ("Nemotron 3 Nano 30B-A3B", 6, 23, 23),
        ("Granite 4.0 H Small 32B-A9B", 4, 36, 40),
        ("Falcon-H1 7B", 44, 44, 44),
        ("Kimi Linear 48B-A3B", 7, 20, 27),
        ("Jamba v0.1 52B-A12B", 4, 28, 32),
        ("MiniMax-Text-01 456B-A46B", 10, 70, 80),
        ("Mamba-2 2.7B", 0, 64, 0),
    ],
)
def test_a_hybrid_has_the_layers_of_its_paper(
    name: str, attention: int, linear: int, feed_forward: int
) -> None:
    a = lookup.model(name)
    assert a.layers - a.attention_free_layers == attention
    assert a.linear_layers == linear
    assert a.layers - a.mlp_free_layers == feed_forward


@pytest.mark.parametrize("name", HYBRIDS)
def test_a_linear_layer_costs_the_same_for_a_token_of_any_sequence(name: str) -> None:
    a = lookup.model(name)
    full = a.layers - a.attention_free_layers
    near, far = (float(flop_per_token(a, tokens)) for tokens in (4096, 131072))
    width = a.heads * (a.qk_nope_head_dim + a.qk_rope_head_dim + a.v_head_dim) / 2 or a.heads * a.head_dim
    assert far - near == pytest.approx(12 * full * width * (131072 - 4096) / 2)


def test_the_scan_has_the_flops_of_the_papers() -> None:
    chunk, state, head = 256, 64, 64
    one = state_space_flop(heads=1, groups=1, state=state, head=head, chunk=chunk)
    assert one == 2 * (chunk * state + chunk * head + 2 * state * head)
    assert delta_rule_flop(heads=2, keys=128, values=128, chunk=64) == 2 * delta_rule_flop(
        heads=1, keys=128, values=128, chunk=64
    )


def test_latent_experts_have_the_weights_of_their_own_width() -> None:
    plain = CONFIGS["Nemotron 3 Nano 30B-A3B"] | {"hidden_size": 4096, "moe_intermediate_size": 2048}
    plain |= {"moe_shared_expert_intermediate_size": 4096}
    whole, latent = from_config(plain), from_config(plain | {"moe_latent_size": 1024})
    layers, routed = 23, 2 * 128 * 2048
    projections = 2 * 4096 * 1024
    assert whole.parameters_total - latent.parameters_total == pytest.approx(
        layers * (routed * (4096 - 1024) - projections)
    )


def test_a_pattern_with_an_unknown_layer_is_named() -> None:
    broken = CONFIGS["Nemotron-H 8B"] | {"hybrid_override_pattern": "M-X"}
    with pytest.raises(InputError, match="layer_types"):
        from_config(broken)


def test_layers_that_differ_in_number_from_the_list_are_refused() -> None:
    broken = CONFIGS["Qwen3-Next 80B-A3B"] | {"layer_types": ["linear_attention"]}
    with pytest.raises(InputError, match="48 layers"):
        from_config(broken)
