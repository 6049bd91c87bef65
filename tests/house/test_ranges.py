"""Ranges that hold measurements of load."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is run from the repository, not installed
from bench import ranges

ROWS = [
    {"bench": "operator", "figure": "ratio", "better": "more", "mean": "0.6", "runs": "3"},
    {"bench": "operator", "figure": "rss_mib", "better": "less", "mean": "150", "runs": "3"},
    {"bench": "operator", "figure": "missed", "better": "less", "mean": "0", "runs": "3"},
    {"bench": "slurm", "figure": "peak_mib", "better": "less", "mean": "500", "runs": "3"},
]
GOOD = {"ratio": 0.6, "rss_mib": 150.0, "missed": 0}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "ranges.csv"
    ranges.write_ranges(ROWS, path)
    return path


@pytest.fixture
def check(tmp_path, table):
    def checked(*results, options=()):
        paths = [tmp_path / f"{number}.json" for number in range(len(results))]
        for path, result in zip(paths, results, strict=True):
            path.write_text(json.dumps(result))
        return ranges.main(["operator", *map(str, paths), *options], path=table)

    return checked


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"ratio": 0.51}, 0),
        ({"ratio": 0.49}, 1),
        ({"rss_mib": 179.0}, 0),
        ({"rss_mib": 181.0}, 1),
        ({"ratio": 2.0, "rss_mib": 1.0}, 0),
        ({"missed": 1}, 1),
    ],
)
def test_a_figure_may_be_a_fifth_worse_than_its_mean(check, changes, code):
    assert check(GOOD | changes) == code


def test_the_report_marks_figures_outside_their_range(check, capsys):
    check(GOOD | {"missed": 1})
    marked = [line for line in capsys.readouterr().out.splitlines() if "OUTSIDE" in line]
    assert [line.split()[0] for line in marked] == ["missed"]


def test_one_result_of_several_that_is_outside_fails(check):
    assert check(GOOD, GOOD | {"ratio": 0.1}) == 1


def test_recording_sets_the_means_of_one_bench(check, table):
    assert check(GOOD, GOOD | {"ratio": 0.8}, options=["--record"]) == 0
    after = ranges.read_ranges(table)
    assert after[0] | {"mean": "0.7", "runs": "2"} == after[0]
    assert after[3] == ROWS[3]


def test_a_result_without_a_figure_is_an_error_of_one_line(check):
    with pytest.raises(SystemExit, match=r"0\.json: no number for ratio"):
        check({"rss_mib": 1.0, "missed": 0})


def test_every_shipped_range_comes_from_three_runs_or_more():
    assert not [row for row in ranges.read_ranges() if int(row["runs"]) < 3]
