import json
import subprocess
import sys
from pathlib import Path

import pytest

from rightsizer_api.spec.launch import READ_FROM_LOG_LINES
from rightsizer_launch.argv.torchrun import program
from rightsizer_launch.stacks.catalog import OBSERVED, observed, resizes_in_place, stack_of
from rightsizer_launch.stacks.log_lines import FORMATS

SCRIPT = """
import json, pickle, sys
def named(): pass
print(json.dumps({"argv": sys.argv[1:], "name": __name__, "path": sys.path[0],
                  "pickles": pickle.loads(pickle.dumps(named)) is named}))
"""


def run(folder, *command):
    argv = [sys.executable, "-m", "rightsizer_launch.stacks.observe", "transformers", *command]
    done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", [("jobs/train.py",), ("-m", "jobs.train")], ids=["file", "module"])
def test_a_script_has_the_environment_of_a_plain_start(tmp_path, command):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/train.py").write_text(SCRIPT)
    seen = run(tmp_path, *command, "--lr", "1")
    home = tmp_path if command[0] == "-m" else tmp_path / "jobs"
    assert seen == {"argv": ["--lr", "1"], "name": "__main__", "path": str(home), "pickles": True}


def test_a_program_on_the_path_is_run_in_this_process(tmp_path):
    tool = Path(tmp_path / "some-train")
    tool.write_text(f"#!{sys.executable}\n{SCRIPT}")
    assert run(tmp_path, str(tool), "config.yaml")["argv"] == ["config.yaml"]


def test_a_program_that_is_not_python_runs_unchanged(tmp_path):
    tool = tmp_path / "run.sh"
    tool.write_text('#!/bin/sh\necho "\\"$1\\""\n')
    tool.chmod(0o755)
    assert run(tmp_path, str(tool), "config.yaml") == "config.yaml"


@pytest.mark.parametrize("name", ["transformers", "hf", "trl", "axolotl", "llama-factory", "unsloth"])
def test_stacks_built_on_the_trainer_are_observed_as_transformers(name):
    assert stack_of(name).name == "transformers"


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        ("torchtitan", "torchtitan"),
        ("megatron-lm", "megatron"),
        ("nemo", "nemo"),
        ("torchtune", "torchtune"),
        ("deepspeed-zero3", "deepspeed"),
    ],
)
def test_a_stack_that_is_not_built_on_the_trainer_has_its_own_observer(name, stack):
    assert stack_of(name).name == stack


def test_stacks_without_a_hook_are_those_that_a_plan_reads_from_log_lines():
    without = [stack for stack in OBSERVED.values() if not stack.hooks]
    assert {profile for stack in without for profile in stack.profiles} == READ_FROM_LOG_LINES
    assert {stack.name for stack in without} == FORMATS.keys()


@pytest.mark.parametrize(
    ("said", "name"),
    [("lightning", "lightning"), ("PyTorch Lightning", "lightning"), ("accelerate", "accelerate")],
)
def test_a_stack_that_shares_a_profile_is_known_by_its_name(said, name):
    assert stack_of(said).name == name


def test_a_script_of_an_observed_framework_starts_through_the_observer():
    own = program(["python", "-m", "axolotl.cli.train", "config.yaml"])
    started = observed("axolotl", own)
    assert (started.target, started.module) == ("rightsizer_launch.stacks.observe", True)
    assert started.arguments == ("transformers", "-m", "axolotl.cli.train", "config.yaml")


def test_a_script_that_reports_itself_starts_unchanged():
    own = program(["train.py"])
    assert observed("ddp", own) is own


@pytest.mark.parametrize(
    ("framework", "in_place"),
    [("transformers", True), ("trl", True), ("ddp", True), ("deepspeed", False), ("megatron-lm", False)],
)
def test_workers_change_their_number_in_place_where_no_argument_holds_it(framework, in_place):
    assert resizes_in_place(framework) is in_place
