"""Every `--json` against its schema: the commands are those that have the option."""

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from tests.cli.commands.conftest import StandIn
from tests.cli.commands.test_report import BUSY, DAY_OF_FOUR
from tests.operator.kubectl.conftest import PLAN, says
from tests.operator.kubectl.test_plans import NODE
from tests.slurm.cluster.test_jobs_json import OLD as SLURM_JOB
from tests.slurm.conftest import FakeSlurm
from typer.main import get_command

from rightsizer_api.schema.generate import main as write
from rightsizer_cli.kubectl import main as kubectl
from rightsizer_cli.main import build, execute
from rightsizer_cli.output.documents.generate import files
from rightsizer_cli.output.documents.schemas import DOCUMENTS

ROOT = Path(__file__).parents[3]
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (ROOT / "docs/schemas").glob("*.json")}
GPT2 = ("--model", "gpt2", "--tokens", "1B", "--gpu", "H100")
LLAMA = ("--model", "llama-3.1-8b", "--tokens", "100B", "--gpu", "H100")

ARGUMENTS = {
    "plan": {
        "a plan": (*LLAMA, "--deadline", "72h"),
        "all sections": (*GPT2, "--compare-ownership", "--serve", "requests=2"),
        "a model too large to serve": (*LLAMA[2:], "--model", "llama-3.1-405b", "--serve", "requests=2"),
        "no plan": (*GPT2, "--deadline", "1s"),
    },
    "estimate": {
        "a step": ("--model", "gpt2", "--gpu", "H100", "--gpus", "8"),
        "a run": (*GPT2, "--gpus", "8"),
        "too large": (*LLAMA, "--gpus", "1"),
    },
    "explain": {"a plan": GPT2, "no plan": (*GPT2, "--deadline", "1s")},
    "advise": {
        "late": (
            *LLAMA,
            "--gpus",
            "64",
            "--deadline",
            "50h",
            "--tokens-per-second",
            "4e5",
            "--tokens-done",
            "1B",
        ),
        "no deadline": (*LLAMA, "--gpus", "64", "--tokens-per-second", "4e5", "--tokens-done", "1B"),
    },
    "calibrate": {"measured": ("--runs", "{folder}/runs.csv", "--file", "{folder}/calibration.json")},
    "simulate": {"a trace": ("{folder}/trace.csv",)},
    "report": {"no data": ("--prometheus", "{nothing}"), "a day": ("--prometheus", "{day}")},
    "doctor": {"this machine": ("machine",)},
    "models": {"all": (), "one": ("gpt2",)},
    "gpus": {"all": ()},
    "nodes": {"all": ()},
    "frameworks": {"all": ()},
    "slurm-report": {"a job": ("--state", "{folder}/none.db")},
    "kubectl-plan": {"a live plan": ("demo",)},
    "kubectl-explain": {"a live plan": ("demo",)},
    "kubectl-status": {"one": ("demo",), "all": ()},
}
CASES = {
    f"{name}: {case}": (name, given) for name, cases in ARGUMENTS.items() for case, given in cases.items()
}

RUNS = """\
id,framework,layers,hidden,ffn_hidden,heads,vocab,seq_len,gpu,gpus,dp,tp,pp,micro_batch,global_batch,precision,zero_stage_or_fsdp,step_time_s,steps
A,torchtitan,32,4096,14336,32,128256,8192,H100-SXM5-80GB,8,8,1,1,1,64,bf16,fsdp,15,1400
"""
TRACE = """\
submitted_utc,duration_s,gpus
2026-01-01T00:00:00,36000,8
2026-01-01T00:10:00,7200,4
2026-01-02T00:00:00,40000,8
"""
KUBECTL = """#!/bin/sh
case "$*" in
*trainingplans*demo*) cat {folder}/plan.json ;;
*trainingplans*) cat {folder}/plans.json ;;
*) cat {folder}/nodes.json ;;
esac
"""


@pytest.fixture
def place(tmp_path, served, monkeypatch):
    """A folder with files, Slurm's commands and a kubectl; two metrics servers. What `{...}` stands for."""
    slurm = FakeSlurm(tmp_path)
    slurm.prints("squeue", json.dumps({"jobs": [SLURM_JOB]}))
    live = says(copy.deepcopy(PLAN), Ready="Running", DeadlineAtRisk=("False", "OnTime", ""))
    live["spec"]["launch"] = {"framework": "ddp", "image": "train:1", "command": ["train.py"]}
    del live["status"]["sizing"]
    texts = {"runs.csv": RUNS, "trace.csv": TRACE, "plan.json": json.dumps(live)}
    texts |= {"plans.json": json.dumps({"items": [live]}), "nodes.json": json.dumps({"items": [NODE]})}
    for name, text in (texts | {"kubectl": KUBECTL.format(folder=tmp_path)}).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return {"folder": tmp_path, "nothing": served(StandIn({})), "day": served(StandIn(BUSY, DAY_OF_FOUR))}


def with_json(group, *words: str) -> set[str]:
    """The commands of a group that have the option, their words joined by dashes."""
    found = set()
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= with_json(command, *words, name)
        elif any("--json" in parameter.opts for parameter in command.params):
            found.add("-".join((*words, name)))
    return found


def printed(name: str, arguments, capsys) -> object:
    words = name.split("-")
    program = kubectl.execute if words[0] == "kubectl" else execute
    words = words[1:] if words[0] == "kubectl" else words
    code = program([*words, *arguments, "--json"])
    out, err = capsys.readouterr()
    assert out, f"exit code {code}: {err}"
    return json.loads(out)


def test_every_command_with_json_has_a_schema_and_is_run_here():
    commands = with_json(get_command(build())) | with_json(get_command(kubectl.build()), "kubectl")
    assert commands == set(DOCUMENTS) == set(SCHEMAS) == set(ARGUMENTS)


IMPORTS_TORCH = {"doctor: this machine"}
OUTPUTS = [
    pytest.param(*each, id=case, marks=[pytest.mark.slow] if case in IMPORTS_TORCH else [])
    for case, each in CASES.items()
]


@pytest.mark.parametrize(("name", "given"), OUTPUTS)
def test_the_output_matches_the_schema(name, given, place, capsys):
    found = printed(name, [word.format(**place) for word in given], capsys)
    assert found
    Draft202012Validator(SCHEMAS[name]).validate(found)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_valid_and_closed(name):
    Draft202012Validator.check_schema(SCHEMAS[name])
    for node in objects(SCHEMAS[name]):
        assert "additionalProperties" in node, node.get("title")


def objects(node):
    """Every schema of an object."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield node
        for value in node.values():
            yield from objects(value)


def test_a_key_that_the_schema_does_not_know_is_refused(capsys):
    (gpu,) = printed("gpus", ["H100"], capsys)
    with pytest.raises(ValidationError, match="colour"):
        Draft202012Validator(SCHEMAS["gpus"]).validate([gpu | {"colour": "green"}])
    del gpu["memory_bytes"]
    with pytest.raises(ValidationError, match="memory_bytes"):
        Draft202012Validator(SCHEMAS["gpus"]).validate([gpu])


def test_the_committed_schemas_are_those_that_are_generated(capsys):
    assert write(["--check"], files()) == 0, capsys.readouterr().err


def test_the_command_prints_the_schema_with_its_version(capsys):
    assert execute(["schema", "doctor"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.pop("$id").startswith("urn:rightsizer:")
    assert shown == SCHEMAS["doctor"]


def test_a_command_without_a_schema_is_one_error(capsys):
    assert execute(["schema", "run"]) == 2
    assert capsys.readouterr().err.startswith("error: COMMAND: 'run': unknown")
