"""The form takes what the command takes."""

import shlex

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.page.form import EXAMPLE, GROUPS, address, command, options, query_of_flag, stated
from rightsizer_cli.requests.inputs import read
from rightsizer_engine.errors import InputError

QUESTION = {"model": "gpt2", "tokens": "1B", "gpu": "A100-SXM4-80GB", "max_gpus": "8", "compile": "no"}


def test_every_field_is_an_option_of_the_command(capsys):
    execute(["plan", "--help"])
    shown = capsys.readouterr().out
    names = [field.name for group in GROUPS for field in group.fields]
    assert len(names) == len(set(names)) > 35
    assert [name for name in names if f"--{name.replace('_', '-')}" not in shown] == []


def test_a_query_gives_the_same_request_as_the_flags():
    _, request = read(None, *options(QUESTION))
    assert (request.max_gpus, request.workload.tokens) == (8, 1e9)


def test_the_command_states_the_same_request():
    words = shlex.split(command(QUESTION | {"model": "it's; $(here)"}))
    assert words[:4] == ["rightsizer", "plan", "--model", "it's; $(here)"]
    assert "--no-compile" in words


def test_empty_fields_are_not_stated():
    assert stated({"model": " gpt2 ", "tokens": "", "deadline": "  "}) == {"model": "gpt2"}
    assert address(EXAMPLE).startswith("?model=meta-llama%2FLlama-3.1-8B&tokens=100B")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"max_gpus": "many"}, r"^--max-gpus: 'many': must be a whole number"),
        ({"confidence": "high"}, r"^--confidence: 'high': must be a number"),
        ({"compile": "perhaps"}, r"^--compile: 'perhaps': must be yes or no"),
        ({"model": "x" * 301}, r"^--model: .*more than 300 characters"),
        ({"config": "/etc/passwd"}, r"^config: .*is no field of this page"),
    ],
)
def test_wrong_values_are_named(query, message):
    with pytest.raises(InputError, match=message):
        options(query)


def test_a_lever_changes_the_query():
    assert query_of_flag({"gpu": "H100"}, "--gpu B200-SXM-180GB") == {"gpu": "B200-SXM-180GB"}
    assert query_of_flag({"gpu": "H100"}, "--no-such-flag 3") is None
    assert query_of_flag({"gpu": "H100"}, "") is None
