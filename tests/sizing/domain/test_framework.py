import dataclasses

import pytest

from rightsizer_engine.domain.framework import (
    framework,
    framework_from_text,
    frameworks,
    sharded_trainer,
    unknown_framework,
)
from rightsizer_engine.domain.workload import LossKernel, Recompute
from rightsizer_engine.errors import UnknownNameError


@pytest.mark.parametrize("launch", ["torchtitan", "megatron", "deepspeed", "accelerate", "ddp", "custom"])
def test_every_launch_name_has_a_profile(launch):
    assert framework(launch).name


@pytest.mark.parametrize(
    ("text", "year", "profile"),
    [
        ("Megatron-Bridge (NeMo 26.04)", 2026, "megatron-bridge"),
        ("NVIDIA NeMo Framework Release 24.04 [NVIDIA]", 2024, "nemo"),
        ("PyTorch NVIDIA Release 23.09 [Lenovo]", 2023, "nemo"),
        ("Megatron-LM", 2021, "megatron-lm-2022"),
        ("Megatron-LM 23e00ed + TE 2.11", 2026, "megatron-core-2026"),
        ("Megatron-DeepSpeed (BigScience)", 2022, "megatron-deepspeed"),
        ("llm-foundry/Composer+FSDP1", 2024, "llm-foundry"),
        ("torchtitan (FSDP2)", 2024, "torchtitan-2024"),
        ("torchtitan (FSDP2)", 2025, "torchtitan"),
        ("fsdp_qlora (PyTorch FSDP1 + bnb)", 2024, "fsdp-qlora"),
        ("HF Trainer + PEFT + DeepSpeed", 2023, "deepspeed-zero"),
        ("ms-swift (HF Trainer)", 2024, "ms-swift-2"),
        ("trl SFTTrainer", 2024, "hf-trainer"),
        ("trl SFTTrainer", 2026, "trl-2025"),
        ("trl SFTTrainer", 2026.6, "trl"),
        ("nanochat d20 (8xH100 speedrun)", 2025, "nanochat"),
        ("modded-nanogpt", 2025, "nanochat"),
        ("nanoGPT (DDP)", 2023, "nanogpt"),
        ("PyTorch Lightning (DDP)", 2024, "ddp"),
        ("litgpt pretrain", 2024, "litgpt"),
    ],
)
def test_a_publications_words_name_the_generation(text, year, profile):
    found = framework_from_text(text, year=year)
    assert found is not None
    assert found.name == profile


def test_a_trainer_over_deepspeed_or_fsdp_computes_as_the_trainer_and_holds_states_as_the_other():
    stack = framework_from_text("Axolotl + DeepSpeed ZeRO-3 + Liger", year=2025)
    assert stack is not None
    assert (stack.family, stack.master_bytes, stack.bucket_bytes > 0) == ("deepspeed", 4.0, True)
    assert stack.loss is LossKernel.FUSED
    over = sharded_trainer(framework("llama-factory"), framework("fsdp1"))
    assert (over.lora_targets, over.default_recompute, over.gathers_embeddings) == (
        "all",
        Recompute.FULL,
        True,
    )


@pytest.mark.parametrize(
    ("name", "bytes_per_weight"),
    [("llama-factory", 16.0), ("trl", 16.0), ("axolotl", 8.0), ("nanogpt", 16.0)],
)
def test_a_trainer_keeps_the_states_that_its_own_defaults_load(name, bytes_per_weight):
    facts = framework(name)
    states = facts.weight_bytes + facts.gradient_bytes + facts.master_bytes + 2 * facts.moment_bytes
    assert states == bytes_per_weight


@pytest.mark.parametrize("name", ["trl", "llama-factory", "axolotl", "ms-swift-3", "unsloth"])
def test_everyday_trainers_recompute_by_default(name):
    assert framework(name).default_recompute is Recompute.FULL
    assert framework("hf-trainer").default_recompute is Recompute.NONE


def test_an_unheard_of_framework_is_not_recognised():
    assert framework_from_text("Acme secret stack 1.0") is None


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"model_parallel": True}, "unknown-parallel"),
        ({"sharded": True}, "unknown-sharded"),
        ({"sharded": True, "year": 2024.0}, "unknown-sharded-2024"),
        ({"sharded": True, "model_parallel": True}, "unknown-sharded"),
        ({"sharded": True, "zero": True}, "unknown-zero"),
        ({"sharded": True, "zero": True, "year": 2023.0}, "unknown-zero-2024"),
        ({"model_parallel": True, "zero": True}, "unknown-parallel-zero"),
        ({"model_parallel": True, "zero": True, "year": 2022.0}, "unknown-parallel-2022"),
        ({"model_parallel": True, "zero": True, "intricate": True}, "unknown-parallel"),
        ({"finetune": True}, "unknown-finetune"),
        ({"adapters": True, "sharded": True}, "unknown-adapters"),
    ],
    ids=[
        "tensor-parallel",
        "sharded",
        "sharded before compiled losses",
        "sharded by FSDP, tensor-parallel",
        "told as ZeRO",
        "told as ZeRO before compiled losses",
        "tensor-parallel, told as ZeRO",
        "tensor-parallel, told as ZeRO, in DeepSpeed's years",
        "tensor-parallel, told as ZeRO, interleaved",
        "fine-tuning",
        "adapters",
    ],
)
def test_the_assumed_profile_of_an_unknown_framework_follows_the_layout_with_a_note(facts, name):
    plain = {"model_parallel": False, "sharded": False, "adapters": False}
    found = unknown_framework(**(plain | facts))
    assert (found.name, found.known) == (name, False)


def test_a_wrong_name_lists_the_right_ones():
    with pytest.raises(UnknownNameError, match="torchtitan"):
        framework("torchtittan")


def test_every_profile_states_its_source_and_only_facts_that_exist():
    for profile in frameworks():
        names = {f.name for f in dataclasses.fields(profile)}
        sources = dict(profile.sources)
        assert sources["*"], profile.name
        assert set(sources) - {"*"} <= names, profile.name


def test_profiles_keep_enough_bytes_to_train():
    for kept in frameworks():
        assert kept.weight_bytes >= 2, kept.name
        both_moments_bytes = 2 * kept.moment_bytes
        assert kept.weight_bytes + kept.gradient_bytes + kept.master_bytes + both_moments_bytes >= 8, (
            kept.name
        )
