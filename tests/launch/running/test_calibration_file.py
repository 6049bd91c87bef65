"""The file of measured runs: found, read, added to and replaced whole."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request
from rightsizer_launch.running import calibration
from rightsizer_launch.worker.progress import Record


def sized() -> Plan:
    """A small plan to have been run."""
    answer = size(
        Request(
            architecture=lookup.model("GPT-2 small"),
            workload=Workload(tokens=1e8, sequence_tokens=1024, global_batch_sequences=32),
            framework=lookup.framework("ddp"),
            clusters=(lookup.cluster("A100-SXM4-80GB", max_gpus=2),),
            gpu_counts=(2,),
        )
    )
    assert isinstance(answer, Plan)
    return answer


def steps(count: int, *, world: int = 2) -> list[Record]:
    return [Record(event="step", time=float(i), step=i, step_s=0.5, world=world) for i in range(count)]


def observed(count: int = 30, *, run: str = "a", world: int = 2):
    answer = sized()
    return calibration.observed(
        answer.request, answer.option, run=run, steps=steps(count, world=world), attempt=1
    )


def test_the_peak_of_the_fullest_gpu_is_observed_beside_the_steps():
    answer = sized()
    some = [replace(r, peak_bytes=2e9 if r.step == 4 else None) for r in steps(30)]
    other = Record(event="step", time=0.0, step=1, step_s=0.5, world=1, peak_bytes=9e9)
    (found,) = calibration.observed(answer.request, answer.option, run="a", steps=[other, *some], attempt=1)
    assert found.allocated_bytes == 2e9
    assert (
        calibration.observed(answer.request, answer.option, run="a", steps=steps(30), attempt=1)[
            0
        ].allocated_bytes
        == 0
    )


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"RIGHTSIZER_CALIBRATION": "/a/b.json", "HOME": "/h"}, Path("/a/b.json")),
        ({"RIGHTSIZER_CALIBRATION": " ", "HOME": "/h"}, None),
        ({"XDG_DATA_HOME": "/data", "HOME": "/h"}, Path("/data/rightsizer/calibration.json")),
        ({"HOME": "/h"}, Path("/h/.local/share/rightsizer/calibration.json")),
    ],
    ids=["named", "switched off", "xdg", "home"],
)
def test_the_file_is_at_the_path_in_the_environment(environ, path):
    assert calibration.default_path(environ) == path


def test_a_run_is_observed_past_its_warm_up():
    (found,) = observed(30)
    assert found.step_s == pytest.approx(0.5)
    assert 20 <= found.steps < 30


@pytest.mark.parametrize(("count", "world"), [(1, 2), (30, 1)], ids=["too short", "other workers"])
def test_a_run_without_the_plan_is_not_observed(count, world):
    assert observed(count, world=world) == ()


def test_runs_are_added_once_and_nothing_is_left_beside_the_file(tmp_path):
    path = tmp_path / "deep" / "calibration.json"
    assert calibration.read(path) == ()
    calibration.add(observed(run="a"), path)
    calibration.add((*observed(run="a"), *observed(run="b")), path)
    assert [one.run for one in calibration.read(path)] == ["a", "b"]
    assert sorted(p.name for p in path.parent.iterdir()) == ["calibration.json", "calibration.json.lock"]
    assert len(calibration.load(path).evidence) == 2


def test_a_report_is_fed_back(tmp_path):
    path = tmp_path / "calibration.json"
    calibration.add(observed(), tmp_path / "other.json")
    report = {"observations": json.loads((tmp_path / "other.json").read_text())["observations"]}
    assert calibration.record(report, path) == 1
    assert calibration.record({"observations": []}, path) == 0
    assert calibration.record(report) == 0, "the tests' own environment switches the user's file off"
    assert [one.run for one in calibration.read(path)] == ["a"]


def test_a_measured_plan_is_corrected_when_made_again(tmp_path):
    path, before = tmp_path / "calibration.json", sized()
    calibration.add(observed(500), path)
    after = size(replace(before.request, calibration=calibration.load(path)))
    assert before.option.step_s < after.option.step_s < 0.5


def test_a_place_that_cannot_be_written_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        calibration.add(observed(), tmp_path / "file" / "calibration.json")
