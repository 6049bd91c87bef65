"""The arguments that reach the user's kubectl, and the output that reaches the terminal."""

import json

import pytest
from tests.operator.kubectl.conftest import Server, Where, says

from rightsizer_operator.kubectl.client import Client, ClusterError


def client(server, **where):
    return Client(where=Where(**where), run=server)


def test_the_users_context_and_namespace_reach_kubectl(plan):
    server = Server(plan)
    client(server, namespace="nlp", context="prod").plan("demo")
    assert server.asked[0][:3] == ["--namespace=nlp", "--context=prod", "get"]


def test_a_plan_that_is_not_there_is_kubectls_own_last_line():
    with pytest.raises(ClusterError, match=r'\(NotFound\): trainingplans.rightsizer.dev "demo" not found'):
        client(Server()).plan("demo")


def test_no_escape_sequence_of_a_worker_reaches_the_terminal(plan):
    hostile = says(plan, Ready=("False", "Failed", "exit code 1: \x1b]52;c;cm0gLXJm\x07"))
    read = client(Server(hostile)).plan("demo")
    assert "\x1b" not in json.dumps(read, ensure_ascii=False)


@pytest.mark.parametrize("name", ["--all", "-A", "a b", "", "Name", "a;b"])
def test_nothing_but_a_name_reaches_kubectl(name):
    server = Server()
    with pytest.raises(ValueError, match="NAME"):
        client(server).plan(name)
    assert server.asked == []


def test_a_change_is_one_patch_of_the_spec(plan):
    server = Server(plan)
    client(server).patch("demo", {"suspend": True})
    assert json.loads(server.asked[0][-1].removeprefix("--patch=")) == {"spec": {"suspend": True}}
