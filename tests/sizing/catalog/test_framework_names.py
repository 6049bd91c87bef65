import pytest

from rightsizer_engine.catalog.framework_names import also_called, framework_named, sharding_named
from rightsizer_engine.domain.framework import frameworks
from rightsizer_engine.domain.layout import Sharding
from rightsizer_engine.errors import UnknownNameError


@pytest.mark.parametrize(
    ("said", "profile"),
    [
        ("Megatron-LM", "megatron"),
        ("megatron core", "megatron-core"),
        ("nvidia nemo", "nemo"),
        ("FSDP", "fsdp2"),
        ("fsdp_2", "fsdp2"),
        ("transformers", "hf-trainer"),
        ("HF", "hf-trainer"),
        ("LLaMA-Factory", "llama-factory"),
        ("deepspeed-zero3", "deepspeed-zero"),
        ("deepspeed", "deepspeed-zero"),
        ("OLMo-core", "fsdp2"),
        ("lightning", "ddp"),
        ("ms-swift", "ms-swift-3"),
        ("custom", "unknown"),
    ],
)
def test_common_names_mean_the_present_generation(said, profile):
    assert framework_named(said).name == profile


@pytest.mark.parametrize("profile", [profile.name for profile in frameworks()])
def test_every_profile_can_be_named_by_its_own_name_and_by_the_others(profile):
    assert [framework_named(name).name for name in (profile, *also_called(profile))] == [profile] * (
        1 + len(also_called(profile))
    )


@pytest.mark.parametrize(("said", "profile"), [("transformers", "peft"), ("custom", "unknown-adapters")])
def test_adapters_are_trained_by_the_library_for_them(said, profile):
    assert framework_named(said, adapters=True).name == profile


def test_an_unknown_name_suggests_near_ones():
    with pytest.raises(UnknownNameError, match=r"'axolotle': unknown; did you mean axolotl\?"):
        framework_named("axolotle")


@pytest.mark.parametrize("name", ["", " ", "\x00", "-" * 63])
def test_a_name_without_letters_is_unknown(name):
    with pytest.raises(UnknownNameError, match="rightsizer frameworks"):
        framework_named(name)


@pytest.mark.parametrize(
    ("said", "stage"),
    [
        ("deepspeed-zero3", Sharding.ZERO3),
        ("ZeRO-2", Sharding.ZERO2),
        ("zero1", Sharding.ZERO1),
        ("deepspeed", None),
        ("deepspeed-zero", None),
        ("fsdp2", None),
    ],
)
def test_a_name_may_state_a_zero_stage(said, stage):
    assert sharding_named(said) == stage
