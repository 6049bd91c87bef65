"""simulate: a trace in, savings out; what is wrong in a trace is named by line and column."""

import gzip
import json

import pytest

from rightsizer_cli.main import execute

HEADER = "submitted_utc,duration_s,gpus,virtual_cluster"
TRACE = f"""{HEADER}
2017-10-03T08:00:00Z,36000,8,a
2017-10-03T09:00:00Z,36000,8,a
2017-10-03T10:00:00Z,600,1,b
"""


def written(tmp_path, text, name="jobs.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def answer(capsys, *args) -> dict:
    capsys.readouterr()
    assert execute(["simulate", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_sample_saves_gpu_hours_at_no_more_missed_deadlines(capsys):
    found = answer(capsys)
    assert found["jobs"] == 1536
    assert found["savedFraction"] >= 0.3
    assert found["rightsizer"]["missedDeadlines"] <= found["static"]["missedDeadlines"]
    assert 0 <= found["aboveOracleFraction"] < 0.5


def test_one_seed_gives_one_answer_and_another_another(tmp_path, capsys):
    trace = written(tmp_path, TRACE, "jobs.csv.gz")
    first, again, other = (answer(capsys, trace, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert first["static"]["gpuHours"] == other["static"]["gpuHours"] == pytest.approx(160.167, abs=0.01)
    assert first != other


def test_what_the_trace_says_is_not_drawn(tmp_path, capsys):
    text = f"{HEADER},deadline_utc,utilisation\n2017-10-03T08:00:00Z,36000,8,a,2017-10-04T08:00:00Z,0.05\n"
    found = answer(capsys, written(tmp_path, text), "--deadlines", "none")
    assert found["jobsWithDeadline"] == 1
    assert "1 of 1 jobs have the trace's own" in found["assumptions"]["utilisation"]
    assert found["savedFraction"] > 0.3


def test_people_read_the_verdict_first_and_what_was_assumed(tmp_path, capsys):
    assert execute(["simulate", written(tmp_path, TRACE)]) == 0
    out = capsys.readouterr().out
    assert "than static requests" in out.splitlines()[0]
    assert "- deadlines: submitted + 0.5 to 1.5 x duration" in out
    assert "0 of 3 jobs have the trace's own" in out


@pytest.mark.slow
def test_it_draws_the_replay(tmp_path, capsys):
    assert execute(["simulate", written(tmp_path, TRACE), "--plot", str(tmp_path / "x.svg")]) == 0
    assert "GPUs in use" in (tmp_path / "x.svg").read_text()


BAD = {
    "no GPUs": (TRACE + "2017-10-03T10:00:00Z,600,0,b\n", "line 5, gpus: '0'"),
    "half a GPU": (TRACE + "2017-10-03T10:00:00Z,600,0.5,b\n", "line 5, gpus"),
    "duration no number": (TRACE + "2017-10-03T10:00:00Z,ten,1,b\n", "line 5, duration_s: 'ten'"),
    "duration nan": (TRACE + "2017-10-03T10:00:00Z,nan,1,b\n", "line 5, duration_s"),
    "duration negative": (TRACE + "2017-10-03T10:00:00Z,-5,1,b\n", "line 5, duration_s"),
    "no moment": (TRACE + "yesterday,600,1,b\n", "line 5, submitted_utc: 'yesterday'"),
    "a cell short": (TRACE + "2017-10-03T10:00:00Z,600,1\n", "line 5: '2017-10-03T10:00:00Z,600,1'"),
    "no such column": ("submitted_utc,gpus\n2017-10-03T10:00:00Z,1\n", "line 1, duration_s"),
    "no jobs": (HEADER + "\n", "holds no jobs"),
    "nothing": ("", "line 1, submitted_utc"),
    "an open quote": (TRACE + '"2017', "line 5: is no CSV"),
    "deadline before": (
        f"{HEADER},deadline_utc\n2017-10-03T10:00:00Z,6,1,b,2017-10-03T09:00:00Z\n", "line 2, deadline_utc",
    ),
    "utilisation in per cent": (
        f"{HEADER},utilisation\n2017-10-03T10:00:00Z,6,1,b,52\n", "line 2, utilisation: '52'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_wrong_trace_is_named_by_line_and_column(tmp_path, capsys, case):
    text, said = case
    assert execute(["simulate", written(tmp_path, text)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


WRONG = {
    "no file": (["/nowhere.csv"], "cannot be read"),
    "too few GPUs": (["--cluster-gpus", "4"], "--cluster-gpus: 4: is less than the"),
    "deadlines": (["--deadlines", "2:1"], "--deadlines: '2:1'"),
    "utilisation": (["--utilisation", "high"], "--utilisation: 'high'"),
    "restart": (["--restart", "5"], "--restart"),
    "plot": (["--plot", "x.gif"], "--plot"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_wrong_option_is_one_line(capsys, case):
    args, said = case
    assert execute(["simulate", *args]) == 2
    assert said in capsys.readouterr().err


def test_a_gzip_file_that_is_none_is_named(tmp_path, capsys):
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(TRACE.encode())[:40])
    assert execute(["simulate", str(path)]) == 2
    assert "is no whole gzip file" in capsys.readouterr().err
