"""plan --compare-ownership."""

import json

import pytest

from rightsizer_cli.main import execute

PLAN = ["plan", "--model", "meta-llama/Llama-3.1-8B", "--tokens", "20B", "--gpu", "H100", "--deadline", "72h"]


def test_the_page_compares_and_gives_stages(capsys):
    assert execute([*PLAN, "--compare-ownership"]) == 0
    out = capsys.readouterr().out
    for words in (
        "Rent or buy",
        "on demand",
        "spot",
        "owned",
        "In stages",
        "1. one GPU: 1 GPU for",
        "rightsizer probe FILE --gpus 1",
        "years=4 ",
    ):
        assert words in out


def test_json_has_every_input_with_its_source(capsys):
    assert execute([*PLAN, "--json", "--own", "years=5", "--own", "server_usd_per_gpu=1e4"]) == 0
    found = json.loads(capsys.readouterr().out)
    inputs = {one["name"]: one for one in found["ownership"]["assumptions"]}
    assert (inputs["years"]["value"], inputs["years"]["source"]) == (5, "given")
    assert inputs["pue"]["date"]
    assert found["ownership"]["offers"][0]["name"] == "on demand"
    assert found["stages"][-1]["gpus"] == found["gpus"]


def test_without_the_option_the_report_is_the_plan_alone(capsys):
    assert execute([*PLAN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ownership"], found["stages"]) == (None, None)


@pytest.mark.parametrize("word", ["years", "years=long", "age=3", "years=-1"])
def test_a_wrong_figure_is_one_line(capsys, word):
    assert execute([*PLAN, "--own", word]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--own" in err
