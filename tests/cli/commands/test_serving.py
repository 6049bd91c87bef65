"""plan --serve."""

import json

import pytest

from rightsizer_cli.main import execute

PLAN = ["plan", "--model", "llama-3.1-8b", "--tokens", "1B", "--deadline", "72h", "--gpu", "H100"]
SERVE = "requests=20,input=1000,output=300,bits=8"


def test_serving_is_printed_below_the_plan_as_a_first_estimate(capsys):
    assert execute([*PLAN, "--serve", SERVE]) == 0
    out = capsys.readouterr().out
    assert "Serving it (a first estimate)" in out
    assert "20 requests/s of 1000 tokens in, 300 out" in out


def test_serving_is_in_the_json_and_marked(capsys):
    assert execute([*PLAN, "--serve", SERVE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["serving"]
    assert found["firstEstimate"] is True
    assert found["gpus"] == found["replicas"] * found["gpusPerReplica"] >= 1
    assert (found["inputTokens"], found["outputTokens"], found["weightBits"]) == (1000, 300, 8)
    assert found["requestsPerSecondPerReplica"] * found["replicas"] * found["load"] >= 20


@pytest.mark.parametrize(
    "wrong", ["", "20", "requests=0", "requests=x", "requests=1,bits=5", "requests=1,input=-3", "rate=3"]
)
def test_a_wrong_demand_is_one_error(wrong, capsys):
    assert execute([*PLAN, "--serve", wrong]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: --serve")


def test_a_network_that_does_not_generate_is_refused(capsys):
    assert execute(["plan", "--model", "bert-base-uncased", *PLAN[3:], "--serve", SERVE]) == 2
    assert "decoders" in capsys.readouterr().err


def test_without_a_plan_the_serving_estimate_is_still_printed(capsys):
    assert execute([*PLAN[:4], "100T", *PLAN[5:], "--max-gpus", "8", "--serve", SERVE]) == 3
    assert "Serving it" in capsys.readouterr().out
