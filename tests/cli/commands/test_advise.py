"""`rightsizer advise`: a job's GPUs, its rate from a log, and the policy's advice; nothing is changed."""

import json

import pytest

from rightsizer_cli.main import execute

MEGATRON = "iteration {n}/100 | elapsed time per iteration (ms): {ms} | global batch size: 512 |"
JOB = [
    "advise",
    "--model",
    "llama-3.1-8b",
    "--tokens",
    "100B",
    "--gpus",
    "64",
    "--gpu",
    "H100",
    "--framework",
    "megatron",
]


def advice(capsys, *arguments):
    assert execute([*JOB, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_job_far_ahead_of_its_deadline_could_do_with_fewer_gpus(capsys):
    found = advice(capsys, "--deadline", "10d", "--tokens-per-second", "400000", "--tokens-done", "1B")
    assert found["action"] in {
        "shrink",
        "flag",
    }  # flag: a restart costs more than it saves
    assert "32 GPUs" in found["reason"]
    assert found["tokensLeft"] == 99e9
    present = next(size for size in found["sizes"] if size["gpus"] == 64)
    assert present["tokensPerSecond"] == pytest.approx(400_000)


def test_a_late_job_needs_more_gpus(capsys):
    found = advice(capsys, "--deadline", "50h", "--tokens-per-second", "400000", "--tokens-done", "1B")
    assert found["action"] == "grow"
    assert found["gpus"] > 64


def test_a_log_gives_the_rate_and_the_model(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("\n".join(MEGATRON.format(n=n, ms=8000.0) for n in (500, 1000)))
    found = advice(
        capsys, "--deadline", "70h", "--log", str(log), "--global-batch", "4M", "--sequence-length", "8192"
    )
    assert found["measured"]["tokens_done"] == pytest.approx(1000 * 488 * 8192)
    assert found["assumed"][-1] == "tokens trained so far: step 1000 of the log"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--tokens-per-second", "4e5", "--tokens-done", "200B"], "--tokens-done"),
        (["--tokens-per-second", "4e5"], "--tokens-done"),
        ([], "--log"),
        (["--log", "nowhere.log"], "--log"),
        (["--kubernetes", "deployment/x"], "--kubernetes"),
        (["--kubernetes", "job/--all"], "--kubernetes"),
    ],
)
def test_what_lacks_is_one_line(arguments, field, capsys):
    assert execute([*JOB, *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {field}: ")
    assert err.count("\n") == 1
