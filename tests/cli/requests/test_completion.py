"""The shell completes values that the plan takes."""

import typing

import pytest
import yaml

from rightsizer_api.short_names import SHORT_NAMES
from rightsizer_cli.main import execute
from rightsizer_cli.requests import completion
from rightsizer_cli.requests.flags import GoalFlags, JobFlags
from rightsizer_engine.catalog import lookup

CRD = "helm/rightsizer/crds/trainingplans.rightsizer.dev.yaml"


def completions():
    """(plan field, its completion) of every option that has one."""
    for group in (JobFlags, GoalFlags):
        for name, hint in typing.get_type_hints(group, include_extras=True).items():
            complete = hint.__metadata__[0].complete
            if complete and SHORT_NAMES[name].partition(".")[0] != "model" and name != "framework":
                yield SHORT_NAMES[name], complete


@pytest.mark.parametrize(("path", "complete"), list(completions()), ids=lambda value: str(value)[:30])
def test_choices_are_those_of_the_plan(path, complete, request):
    crd = yaml.safe_load((request.config.rootpath / CRD).read_text())
    field = {"properties": crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]}
    for step in ("spec", *path.split(".")):
        field = field["properties"][step]
    assert set(complete("")) == set(field["enum"])


def test_names_complete_from_their_start_in_any_case_and_keep_the_typed_part():
    assert {"llama-3-8B", "llama-3.1-8B"} <= set(completion.models("llama-3"))
    assert completion.nodes("P5.48") == ["P5.48xlarge"]
    assert "megatron" in completion.frameworks("mega")
    assert completion.choices("none", "full")("F") == ["Full"]
    assert completion.models("no such model") == []


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_every_name_that_completes_is_known_however_it_is_spelled(spell):
    for name in completion.models(""):
        assert lookup.model(spell(name))
    for name in completion.nodes(""):
        assert lookup.node(spell(name))
    for name in set(completion.gpus("")) - set(completion.nodes("")):
        assert lookup.gpu(spell(name))


@pytest.mark.parametrize(("shell", "quoted"), [("zsh", '"{}"'), ("bash", "{}"), ("fish", "{}")])
def test_completion_offers_names_with_other_letters_than_typed(shell, quoted, monkeypatch, capsys):
    monkeypatch.setenv("_RIGHTSIZER_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "rightsizer plan --gpu h100")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("COMP_WORDS", "rightsizer plan --gpu h100")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        execute([])
    assert quoted.format("h100-SXM5-80GB") in capsys.readouterr().out


def test_the_last_gpu_type_of_a_list_completes():
    assert "A100-SXM4-40GB,H100-SXM5-80GB" in completion.gpus("A100-SXM4-40GB,H1")
    assert completion.gpus("p5.48") == ["p5.48xlarge"]
    assert completion.gpus("H100-SXM5-80GB,p5.48") == []
