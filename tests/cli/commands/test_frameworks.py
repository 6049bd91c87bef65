import json

import pytest

from rightsizer_cli.main import execute


def _listed(capsys, *args):
    assert execute(["frameworks", *args, "--json"]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


def test_frameworks_are_listed_with_their_evidence(capsys):
    listed = _listed(capsys)
    said = {name: (row["launch"], row["resize"]) for name, row in listed.items()}
    observers = {name: row["measured_by"] for name, row in listed.items()}
    assert said["ddp"] == ("launched", "in place")
    assert said["hf-trainer"] == ("launched", "in place")
    assert said["megatron"] == ("launched", "if it can resume")
    assert said["deepspeed-zero"] == ("launched", "by restart, at a named ZeRO stage")
    assert said["hai-llm"][0] == "sized only"
    assert [observers[name] for name in ("torchtitan", "nemo", "fsdp2")] == ["hook", "log lines", "agent"]
    assert "transformers" in listed["hf-trainer"]["also_called"]
    assert listed["megatron-core"]["measured_runs"] > listed["megatron-core"]["measured_sources"] > 1
    assert not any(name.startswith("unknown") for name in listed)


def test_one_framework_is_shown_by_any_of_its_names(capsys):
    assert list(_listed(capsys, "Megatron-LM")) == ["megatron"]


@pytest.mark.parametrize("args", [[], ["nemo"]], ids=["all", "one"])
def test_the_tables_name_them(capsys, args):
    assert execute(["frameworks", *args]) == 0
    assert "nemo" in capsys.readouterr().out


def test_an_unknown_name_is_one_line(capsys):
    assert execute(["frameworks", "nemoo"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
