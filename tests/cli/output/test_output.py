"""The output of plan and explain, in every form."""

import json

import pytest
import yaml

from rightsizer_api import loads
from rightsizer_cli.main import execute

SMALL = ["--model", "gpt2", "--tokens", "1B", "--deadline", "3d", "--gpu", "A100-SXM4-40GB", "--gpus", "8"]
DOCUMENTED = (
    "gpus", "gpuType", "nodes", "layout", "finishSeconds", "costUSD", "memoryGiB", "stepSeconds", "interval",
    "reasons", "runnersUp",
)  # fmt: skip


def printed(capsys, *args: str) -> str:
    execute(list(args))
    return capsys.readouterr().out


def test_json_has_the_documented_keys(capsys):
    assert set(DOCUMENTED) <= set(json.loads(printed(capsys, "plan", *SMALL, "--json")))


def test_no_plan_is_json_too(capsys):
    report = json.loads(printed(capsys, "plan", *SMALL, "--deadline", "10s", "--json"))
    assert report["feasible"] is False
    assert report["binding"] == "deadline"


LORA = ["plan", "--model", "llama-3.1-8b", "--method", "lora", "--examples", "10k"]


def test_without_a_deadline_one_gpu_comes_first_and_then_what_more_would_buy(capsys):
    out = printed(capsys, *LORA, "--gpu", "RTX 4090")
    assert out.startswith("1 RTX 4090, one GPU,")
    table = out.partition("\nMore GPUs\n")[2].partition("\n\n")[0].splitlines()[2:]
    assert [int(line.split()[0]) for line in table] == [2, 4, 8, 16, 32, 64]
    assert "More GPUs" not in printed(capsys, *LORA, "--gpu", "RTX 4090", "--deadline", "2h")


def test_the_cheapest_of_several_gpu_types_has_a_price(capsys):
    types = "RTX 3090,RTX 4090,A10G,L4"
    out = printed(capsys, *LORA, "--method", "qlora", "--gpu", types, "--objective", "cost")
    assert "RTX 4090" in out.splitlines()[0]
    assert "no price is known for RTX 3090: not compared by cost" in out


def test_both_ways_to_ask_for_json_are_one(capsys):
    assert printed(capsys, "plan", *SMALL, "--json") == printed(capsys, "plan", *SMALL, "-o", "json")


def test_yaml_is_a_manifest_that_plans_the_same(capsys, tmp_path):
    text = printed(capsys, "plan", *SMALL, "-o", "yaml")
    file = tmp_path / "plan.yaml"
    file.write_text(text)
    assert yaml.safe_load(text)["kind"] == "TrainingPlan"
    assert loads(text).spec.workload.tokens == "1B"
    assert printed(capsys, "plan", str(file)) == printed(capsys, "plan", *SMALL)


def test_yaml_lists_the_missing_fields_for_a_run(capsys, tmp_path):
    text = printed(capsys, "plan", *SMALL, "-o", "yaml")
    assert "# This plan can be sized. To run it, name the training script" in text
    file = tmp_path / "plan.yaml"
    file.write_text(text + "  launch: {framework: ddp, command: [train.py]}\n")
    assert "#" not in printed(capsys, "plan", str(file), "-o", "yaml")


def test_a_sentence_keeps_to_one_line_in_a_pipe(capsys):
    levers = printed(capsys, "plan", *SMALL).partition("\nLevers")[2].splitlines()[1:]
    assert levers
    assert all(line.startswith("- ") for line in levers)


def test_node_types_are_listed_and_shown(capsys):
    assert "8 x A100-SXM4-40GB" in printed(capsys, "nodes")
    assert json.loads(printed(capsys, "nodes", "p4d.24xlarge", "--json"))[0]["gpus"] == 8


def test_the_verdict_comes_first_and_on_one_line(capsys):
    verdict = json.loads(printed(capsys, "plan", *SMALL, "--json"))["verdict"]
    assert printed(capsys, "plan", *SMALL).splitlines()[0] == verdict
    assert printed(capsys, "explain", *SMALL).splitlines()[0] == verdict


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_pipes_get_no_colour(command, capsys):
    assert "\x1b" not in printed(capsys, command, *SMALL)


@pytest.mark.parametrize(
    "word", ["Layout", "Speed", "Finish", "Goodput", "Cost", "A step takes", "holds", "Why"]
)
def test_the_table_has_every_part(word, capsys):
    assert word in printed(capsys, "plan", *SMALL)


def test_explain_names_the_sources_of_constants(capsys):
    said = json.loads(printed(capsys, "explain", *SMALL, "--json"))
    assert len(said["parameters"]) > 50
    assert all(p["meaning"] and p["unit"] for p in said["parameters"])


STRANGE = [
    "--model",
    "meta-llama/Llama-3.1-8B",
    "--method",
    "qlora",
    "--tokens",
    "1M",
    "--framework",
    "unsloth",
]
STRANGE += ["--gpu", "T4", "--gpus", "1", "--precision", "fp16", "--sequence-length", "1024"]


def test_little_known_plans_advise_a_probe_and_well_known_ones_do_not(capsys):
    advice = "hardly anything like this was measured (no run: unsloth, T4)"
    assert advice in " ".join(printed(capsys, "plan", *STRANGE).split())
    found = json.loads(printed(capsys, "plan", *STRANGE, "--json"))["familiarity"]
    assert (found["level"], found["unfamiliar"]) == ("hardly measured", ["unsloth", "T4"])
    assert found["advice"].startswith(advice)
    known = json.loads(printed(capsys, "plan", *SMALL, "--framework", "torchtitan", "--json"))["familiarity"]
    assert (known["level"], known["advice"]) == ("partly measured", "")


def test_explain_and_estimate_state_the_evidence(capsys):
    assert "Measured like this: " in printed(capsys, "explain", *SMALL)
    assert "Measured like this: " in printed(capsys, "estimate", *STRANGE[:-2])
