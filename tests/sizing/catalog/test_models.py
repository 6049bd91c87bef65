import csv
from importlib import resources

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Family
from rightsizer_engine.errors import UnknownNameError, UnsupportedError

ROWS = {
    row["name"]: row
    for row in csv.DictReader(
        resources.files("rightsizer_engine").joinpath("data", "models.csv").read_text("utf-8").splitlines()
    )
}
REFUSED = {
    "Stable Diffusion 1.5 UNet": "a convolutional network: no transformer formula gives its count",
    "Stable Diffusion XL base UNet": "a convolutional network: no transformer formula gives its count",
}
ROUNDED = {
    "GPT-3 350M (Medium)": "the paper's name rounds 355.9M",
    "GPT-3 1.3B (XL)": "the paper's name rounds 1.316B",
    "GPT-3 2.7B": "the paper's name rounds 2.65B",
    "Llama 4 Scout 17B-16E": "the published 109B includes the vision encoder",
}


def within(value: float, stated: str) -> bool:
    return not stated or value == pytest.approx(float(stated), rel=0.01)


def test_dimensions_give_the_parameter_counts_of_all_models_but_the_refused() -> None:
    wrong = {
        name
        for name, row in ROWS.items()
        if name in REFUSED
        or not within(lookup.model(name).parameters_total, row["params_total"])
        or not within(lookup.model(name).parameters_active, row["params_active"])
    }
    assert wrong == set(REFUSED)
    assert len(ROWS) - len(wrong) >= 125


def test_dimensions_give_the_published_counts_but_for_the_rounded() -> None:
    wrong = {
        m.name for m in lookup.models() if not within(m.parameters_total, ROWS[m.name]["params_published"])
    }
    assert wrong == set(ROUNDED)


def test_the_weights_that_a_token_multiplies_with_are_those_of_6n() -> None:
    stated = {m.name: ROWS[m.name]["params_active_matmul"] for m in lookup.models()}
    wrong = {m.name for m in lookup.models() if not within(m.parameters_matmul_active, stated[m.name])}
    assert not wrong


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", "Llama 3.1 8B"),
        ("llama-3.1-8b", "Llama 3.1 8B"),
        ("LLAMA 3.1 8B", "Llama 3.1 8B"),
        ("Llama-2-70b-hf", "Llama 2 70B"),
        ("Llama-2-70B", "Llama 2 70B"),
        ("gpt2", "GPT-2 small"),
        ("OPT 13b", "OPT 13b"),
        ("OPT 1.3b", "OPT 1.3b"),
        ("Qwen/Qwen3-30B-A3B", "Qwen3 30B-A3B"),
        ("deepseek-ai/DeepSeek-R1", "DeepSeek-V3 671B"),
        ("openai/whisper-large-v3", "Whisper large-v3"),
    ],
)
def test_a_model_answers_to_its_names(name: str, expected: str) -> None:
    assert lookup.model(name).name == expected


def test_every_model_answers_to_its_own_name_however_it_is_spelt() -> None:
    names = {name for name, row in ROWS.items() if row["family"] != "unet"}
    assert {
        name
        for name in names
        if lookup.model(name) is lookup.model(name.upper()) and lookup.model(name).name == name
    } == names


def test_an_alias_as_written_resolves_like_the_index() -> None:
    written = [
        alias for name in ROWS if ROWS[name]["family"] != "unet" for alias in lookup.model_aliases(name)
    ]
    assert [a for a in written if lookup.model(a) is not lookup.model(f" {a}")] == []
    assert len(written) == len(set(written)) > 100


@pytest.mark.parametrize(
    ("name", "near"),
    [("Llama 3.1", "Llama 3.1 8B"), ("mixtral", "Mixtral 8x7B"), ("meta-llama/Llama-3.1-9B", "Llama 3.1 8B")],
)
def test_an_unknown_model_suggests_near_ones(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        lookup.model(name)
    assert near in caught.value.candidates


def test_a_network_that_is_no_transformer_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="UNet"):
        lookup.model("stabilityai/stable-diffusion-xl-base-1.0")


def test_every_model_has_consistent_dimensions() -> None:
    assert len(lookup.models()) > 100
    for network in lookup.models():
        assert network.heads % network.kv_heads == 0, network.name
        assert network.top_k <= network.experts, network.name
        assert network.sliding_layers <= network.layers, network.name
        fixed = network.family in (Family.VISION, Family.DIFFUSION)
        assert (network.fixed_tokens > 0) == fixed, network.name
        assert (network.encoder_layers > 0) or network.family is not Family.ENCODER_DECODER, network.name
        assert network.source, network.name
