"""Names that people have: fine-tuned and quantised variants, any owner."""

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import UnknownNameError


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("unsloth/Llama-3.2-3B-Instruct-bnb-4bit", "Llama 3.2 3B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit", "Llama 3.1 8B"),
        ("hugging-quants/Meta-Llama-3.1-405B-Instruct-AWQ-INT4", "Llama 3.1 405B"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "Llama 3.1 8B"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "Qwen2.5 72B"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3 235B-A22B"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "Gemma 3 27b"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "Mixtral 8x7B"),
    ],
)
def test_a_quantised_variant_is_its_base_model_with_a_note(name: str, model: str) -> None:
    read = lookup.model(name)
    assert read.name == model
    assert "quantised" in read.doubt


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-2-7b-chat-hf", "Llama 2 7B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral 7B v0.3"),
        ("mistralai/Mistral-Large-Instruct-2411", "Mistral Large 2 123B"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepSeek-V3 671B"),
        ("allenai/OLMo-2-1124-13B-DPO", "OLMo 2 13B"),
        ("NousResearch/Meta-Llama-3.1-70B", "Llama 3.1 70B"),
        ("bigcode/starcoder2-15b-instruct-v0.1", "StarCoder2 15B"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen2.5 7B"),
    ],
)
def test_an_official_variant_is_its_base_model_without_a_word(name: str, model: str) -> None:
    read = lookup.model(name)
    assert (read.name, read.doubt) == (model, "")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NousResearch/Hermes-3-Llama-3.1-8B", "Llama 3.1 8B"),
        ("Skywork/Skywork-Reward-Llama-3.1-8B-v0.2", "Llama 3.1 8B"),
        ("allenai/Llama-3.1-Tulu-3-70B", "Llama 3.1 70B"),
        ("TheBloke/dolphin-2.2.1-mistral-7B-GGUF", "Mistral 7B v0.1"),
        ("bigscience/bloomz-7b1-mt", "BLOOM 7b1"),
    ],
)
def test_a_fine_tuned_model_is_read_by_the_base_in_its_name_with_a_note(name: str, model: str) -> None:
    read = lookup.model(name)
    assert read.name == model
    assert f"fine-tuned {model}" in read.doubt


@pytest.mark.parametrize(
    "name",
    [
        "google/gemma-4-31B-it",
        "gemma-31b",
        "llama-38b",
        "Qwen/Qwen2.5-Omni-7B",
        "Salesforce/blip2-opt-2.7b",
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        "nvidia/Llama-3.1-Nemotron-Nano-VL-8B-V1",
        "ibm-granite/granite-4.0-h-1b",
    ],
)
def test_a_name_of_another_size_or_network_is_never_read_as_a_base_model(name: str) -> None:
    with pytest.raises(UnknownNameError):
        lookup.model(name)


@pytest.mark.parametrize(
    "name",
    [
        "microsoft/Phi-4-multimodal-instruct",
        "google/flan-t5-tiny",
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        "my-company/secret-model",
        "Instruct",
        "-",
        "x/4bit",
    ],
)
def test_a_name_without_a_models_size_is_unknown(name: str) -> None:
    with pytest.raises(UnknownNameError):
        lookup.model(name)


def test_a_name_that_fits_several_versions_lists_them() -> None:
    with pytest.raises(UnknownNameError, match="ambiguous") as caught:
        lookup.model("mistral-7b")
    assert set(caught.value.candidates) == {"Mistral 7B v0.1", "Mistral 7B v0.2", "Mistral 7B v0.3"}


@pytest.mark.parametrize("name", ["banana", "acme/the-best-model-ever"])
def test_nothing_is_suggested_for_a_name_that_is_near_to_none(name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        lookup.model(name)
    assert caught.value.candidates == ()
