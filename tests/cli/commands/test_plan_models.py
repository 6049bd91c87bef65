"""`plan` on models of every kind: it names the model and its parameters, and no layout crashes."""

import pytest

from rightsizer_cli.main import execute


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next 80B-A3B (79.67B parameters, 3.875B active)"),
        ("nvidia/Nemotron-H-8B-Base-8K", "Nemotron-H 8B (8.101B parameters)"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "Kimi Linear 48B-A3B (49.12B parameters, 3.484B active)"),
        ("google/gemma-3-27b-it", "Gemma 3 27b (27.01B parameters)"),
        (
            "meta-llama/Llama-4-Scout-17B-16E-Instruct",
            "Llama 4 Scout 17B-16E (107.8B parameters, 17.17B active)",
        ),
        ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-V3.2 671B (671.9B parameters, 38.4B active)"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL 7B (8.292B parameters)"),
        ("state-spaces/mamba2-2.7b", "Mamba-2 2.7B (2.703B parameters)"),
    ],
)
@pytest.mark.parametrize("pins", [[], ["--tp", "2", "--cp", "2"]], ids=["free", "tp and cp"])
def test_a_plan_names_the_model_and_its_parameters(model, shown, pins, capsys):
    asked = ["plan", "--model", model, "--tokens", "10B", "--deadline", "60d", "--gpu", "H100", *pins]
    assert execute([*asked, "--framework", "megatron", "--gpus", "64"]) in (0, 3)
    assert shown in capsys.readouterr().out
