import json
import math
import os

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_launch.running.run_folder import held, worker_error
from rightsizer_launch.worker.progress import ProgressReader, Record, append, write_json


def test_a_record_survives_the_file(tmp_path):
    record = Record(
        event="start", time=1.5, attempt=2, step=7, tokens=9.0, loss=2.5, pids=(11, 12), layout={"dp": 2}
    )
    append(tmp_path / "p", record)
    assert ProgressReader(tmp_path / "p").read() == [record]


def test_a_torn_line_is_left_for_the_next_read(tmp_path):
    path, reader = tmp_path / "p", ProgressReader(tmp_path / "p")
    append(path, Record(event="step", time=1.0, step=1))
    with path.open("a") as file:
        file.write('{"event": "st')
    assert [record.step for record in reader.read()] == [1]
    with path.open("a") as file:
        file.write('ep", "time": 2.0, "step": 2}\n')
    assert [record.step for record in reader.read()] == [2]


def test_rubbish_is_skipped(tmp_path):
    (tmp_path / "p").write_text('nonsense\n[]\n{"time": 3}\n{"event": "step", "time": 1.0, "new_field": 1}\n')
    assert [record.event for record in ProgressReader(tmp_path / "p").read()] == ["step"]


@pytest.mark.parametrize(
    "change",
    [
        {"time": math.nan},
        {"tokens": math.inf},
        {"tokens": 10**400},
        {"step": "7"},
        {"step": -1},
        {"step": 1.5},
        {"pids": [1.5]},
        {"world": None},
        {"event": []},
        {"attempt": [1]},
        {"data_wait_s": "x"},
        {"loss": "x"},
        {"pids": ["x"]},
        {"layout": 5},
    ],
    ids=str,
)
def test_a_record_with_a_wrong_type_or_an_impossible_value_is_skipped(tmp_path, change):
    sound = {"event": "step", "time": 1.0}
    (tmp_path / "p").write_text(f"{json.dumps(sound | change)}\n{json.dumps(sound)}\n")
    assert ProgressReader(tmp_path / "p").read() == [Record(**sound)]


def test_a_step_that_a_script_counts_in_floats_is_whole(tmp_path):
    (tmp_path / "p").write_text('{"event": "step", "time": 1.0, "step": 7.0}\n')
    (record,) = ProgressReader(tmp_path / "p").read()
    assert (record.step, type(record.step)) == (7, int)


def test_a_line_nested_too_deeply_is_skipped(tmp_path):
    (tmp_path / "p").write_text("[" * 100_000 + "\n")
    assert ProgressReader(tmp_path / "p").read() == []


def test_a_directory_belongs_to_one_run_at_a_time(tmp_path):
    with held(tmp_path / "run"), pytest.raises(InputError, match="in use by process"), held(tmp_path / "run"):
        pass
    with held(tmp_path / "run") as again:
        assert again.attempts() == []


def test_an_earlier_run_is_set_aside_not_deleted(tmp_path):
    with held(tmp_path / "run") as directory:
        directory.write_attempts([{"number": 1}])
        assert directory.set_aside().joinpath("run.json").exists()
    assert not (tmp_path / "run").exists()


def test_the_worker_that_failed_first_is_quoted(tmp_path):
    for slot, words in enumerate(("ValueError: no data", "RuntimeError: connection closed")):
        folder = tmp_path / f"worker-{slot}" / "x" / "attempt_1" / "0"
        folder.mkdir(parents=True)
        write_json(
            folder / "error.json", {"message": {"message": words, "extraInfo": {"py_callstack": words}}}
        )
    assert worker_error(tmp_path) == "ValueError: no data"


def test_a_full_disk_leaves_out_a_record_and_ends_no_training(tmp_path, capsys):
    (tmp_path / "progress.jsonl").symlink_to("/dev/full")
    append(tmp_path / "progress.jsonl", Record(event="step", time=1.0, step=7))
    assert capsys.readouterr().err == (
        f"rightsizer: {tmp_path}/progress.jsonl: no record of step 7: No space left on device\n"
    )


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_the_old_one(tmp_path):
    file = tmp_path / "run.json"
    write_json(file, {"attempts": [1]})
    (tmp_path / f".run.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        write_json(file, {"attempts": [1, 2]})
    assert caught.value.filename == str(file)
    assert [json.loads(path.read_text()) for path in tmp_path.iterdir()] == [{"attempts": [1]}]
