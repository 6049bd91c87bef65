"""estimate of one layout."""

import json

import pytest

from rightsizer_cli.main import execute

MODEL = ["estimate", "--model", "meta-llama/Llama-2-70b-hf", "--gpu", "H100", "--framework", "megatron"]


def test_one_layout_is_a_step_time_and_a_memory(capsys):
    assert execute([*MODEL, "--gpus", "64", "--tp", "8", "--pp", "4"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("64 H100-SXM5-80GB (8 nodes), TP 8 x PP 4 x DP 2")
    assert "Finish" not in out


def test_json_holds_the_request_and_nothing_of_the_run(capsys):
    layout = ["--gpus", "64", "--tp", "8", "--pp", "8", "--micro-batch", "2", "--sharding", "Zero1"]
    assert execute([*MODEL, *layout, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {k: found["layout"][k] for k in ("dp", "tp", "pp", "microBatch")} == {
        "dp": 1,
        "tp": 8,
        "pp": 8,
        "microBatch": 2,
    }
    assert sum(found["stepByCauseSeconds"].values()) == pytest.approx(found["stepSeconds"], rel=1e-4)
    assert found["finishSeconds"] is None


def test_a_data_set_makes_a_whole_run(capsys):
    assert execute([*MODEL, "--gpus", "64", "--tp", "8", "--pp", "4", "--examples", "2M"]) == 0
    assert "Finish" in capsys.readouterr().out


def test_a_layout_that_does_not_fit_is_marked(capsys):
    assert execute([*MODEL, "--gpus", "1", "--tokens", "1B", "--global-batch", "8k"]) == 0
    assert "does NOT fit" in capsys.readouterr().out


HSDP = [
    "estimate",
    "--model",
    "llama-3.1-8b",
    "--gpu",
    "A100",
    "--framework",
    "torchtitan",
    "--sharding",
    "hsdp",
]


@pytest.mark.parametrize(
    ("flags", "layout"),
    [
        (["--gpus", "32"], "HSDP 32 in groups of 8,"),
        (["--gpus", "32", "--tp", "2"], "TP 2 x HSDP 16 in groups of 4,"),
        (["--gpus", "32", "--gpus-per-node", "4"], "HSDP 32 in groups of 4,"),
        (["--gpus", "8"], "A100-SXM4-80GB, FSDP 8,"),
    ],
    ids=["node", "beside tensor parallel", "small nodes", "one node"],
)
def test_hybrid_sharding_takes_the_node_as_its_group(flags, layout, capsys):
    assert execute([*HSDP, *flags]) == 0
    assert layout in capsys.readouterr().out.splitlines()[0]


def test_a_slower_network_slows_hybrid_sharding(capsys):
    rates = []
    for network in ("25Gbps", "0.01Gbps"):
        assert execute([*HSDP, "--gpus", "32", "--inter-node-gbps", network, "--json"]) == 0
        rates.append(json.loads(capsys.readouterr().out)["stepSeconds"])
    assert rates[1] > 10 * rates[0]


@pytest.mark.parametrize("flags", [["--gpus", "12"], ["--gpus", "32", "--tp", "8"]], ids=["part", "tensor"])
def test_groups_that_a_node_cannot_hold_are_one_error(flags, capsys):
    assert execute([*HSDP, *flags]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: --sharding: 'hsdp'")
    assert err.count("\n") == 1


BAD = {
    "not a multiple": (["--gpus", "60", "--tp", "8"], "--gpus: 60"),
    "dp disagrees": (["--gpus", "64", "--tp", "8", "--dp", "4"], "--dp: 4"),
    "no experts": (["--gpus", "64", "--ep", "8"], "--ep: 8"),
    "sharding": (["--gpus", "8", "--sharding", "zero9"], "--sharding: 'zero9'"),
    "heads": (["--tp", "5"], "--tp: 5"),
    "layers": (["--pp", "128"], "--pp: 128"),
    "zero": (["--tp", "0"], "--tp"),
    "two types": (["--gpu", "A100-SXM4-80GB"], "--gpu"),
}


@pytest.mark.parametrize(("flags", "message"), BAD.values(), ids=BAD.keys())
def test_an_impossible_layout_is_one_error(flags, message, capsys):
    assert execute([*MODEL, *flags]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
