"""simulate: a trace in, savings out; what is wrong in a trace is named by line and column."""

import gzip
import json

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.requests.trace_jobs import published_exponents

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


ONE = ("--deadlines", "1:3", "--scaling", "published")


def test_the_sample_is_nowhere_worse_on_both_than_a_null_policy(capsys):
    found = answer(capsys, *ONE)
    (case,) = found["cases"]
    policies = case["policies"]
    assert (found["jobs"], found["worseOnBoth"], found["notBetter"]) == (1536, [], [])
    assert found["gpuHoursChange"][0] == policies["staged, OnPressure"]["gpuHoursChange"] < 0
    assert policies["staged, OnPressure"]["missedDeadlines"] <= policies["static"]["missedDeadlines"]
    assert all(row["missedDeadlines"] >= policies["bound"]["missedDeadlines"] for row in policies.values())


def test_the_headline_is_the_range_over_all_assumptions(tmp_path, capsys):
    found = answer(capsys, written(tmp_path, TRACE))
    changes = [case["policies"][found["policy"]]["gpuHoursChange"] for case in found["cases"]]
    assert len(changes) == 6
    assert found["gpuHoursChange"] == [min(changes), max(changes)]


def test_a_losing_row_is_reported(tmp_path, capsys):
    """With even scaling and loose deadlines no policy can save anything."""
    args = [written(tmp_path, TRACE), "--deadlines", "1:3", "--scaling", "even"]
    found = answer(capsys, *args)
    assert ["scaling even, deadlines 1 to 3 x duration", "static"] in found["notBetter"]
    assert execute(["simulate", *args]) == 0
    assert "Not better in either than: " in capsys.readouterr().out


def test_the_result_follows_the_seed(tmp_path, capsys):
    trace = written(tmp_path, TRACE, "jobs.csv.gz")
    first, again, other = (answer(capsys, trace, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    hours = [found["cases"][0]["policies"]["static"]["gpuHours"] for found in (first, other)]
    assert hours[0] == hours[1] == pytest.approx(160.167, abs=0.01)
    assert first != other


def test_values_in_the_trace_are_not_drawn_at_random(tmp_path, capsys):
    text = f"{HEADER},deadline_utc\n2017-10-03T08:00:00Z,36000,8,a,2017-10-04T08:00:00Z\n"
    found = answer(capsys, written(tmp_path, text), "--scaling", "0.5")
    assert found["jobsWithDeadline"] == len(found["cases"]) == 1
    assert "1 of 1 jobs have the trace's own" in found["assumptions"]["deadlines"]
    assert found["gpuHoursChange"][0] < -0.2


def test_the_output_has_the_range_first_and_the_assumptions(tmp_path, capsys):
    assert execute(["simulate", written(tmp_path, TRACE)]) == 0
    out = capsys.readouterr().out
    assert "against static requests over 6 assumptions: " in out.splitlines()[0]
    assert "0 of 3 jobs have the trace's own" in out
    assert "one GPU each" in out


def test_published_exponents_are_of_several_sources_and_between_none_and_even():
    found = published_exponents()
    assert len(found) >= 10
    assert all(0 <= exponent <= 1 for values in found.values() for exponent in values)


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
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_wrong_trace_is_named_by_line_and_column(tmp_path, capsys, case):
    text, said = case
    assert execute(["simulate", written(tmp_path, text)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


WRONG = {
    "no file": (["/nowhere.csv"], "no such file"),
    "too few GPUs": (["--cluster-gpus", "4"], "--cluster-gpus: 4: is less than the"),
    "deadlines": (["--deadlines", "2:1"], "--deadlines: '2:1'"),
    "scaling": (["--scaling", "high"], "--scaling: 'high'"),
    "scaling above even": (["--scaling", "1.5"], "--scaling: '1.5'"),
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
