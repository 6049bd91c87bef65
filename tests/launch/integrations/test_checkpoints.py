import json
import os
import zipfile

import pytest

from rightsizer_launch.integrations.checkpoints import (
    checkpoint_file,
    newest_checkpoint,
    newest_dcp_checkpoint,
    newest_file,
    read_position,
    remove_older_files,
    seal,
)


def write(folder, step, text=None):
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}) if text is None else text)


def test_the_newest_is_the_furthest_not_the_last_in_the_alphabet(tmp_path):
    write(tmp_path, 90)
    write(tmp_path, 1000)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-1000")


@pytest.mark.parametrize("text", ["", '{"global_step": 2', '{"global_step": 10}', "[]"])
def test_a_half_written_checkpoint_is_left_out(tmp_path, text):
    write(tmp_path, 10)
    write(tmp_path, 20, text)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


def test_a_checkpoint_without_its_state_is_left_out(tmp_path):
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-best").mkdir()
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "nothing") is None


def test_a_distributed_checkpoint_is_complete_with_its_metadata(tmp_path):
    for step in (9, 10, 11):
        (tmp_path / f"step-{step}").mkdir()
    for step in (9, 10):
        (tmp_path / f"step-{step}" / ".metadata").touch()
    assert newest_dcp_checkpoint(tmp_path) == str(tmp_path / "step-10")
    assert newest_dcp_checkpoint(tmp_path / "nothing") is None


def save(folder, step, *, whole=True):
    path = checkpoint_file(folder, step, ".ckpt")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"x" * 1000)
    if not whole:
        os.truncate(path, path.stat().st_size // 2)
    return path


def test_a_truncated_file_is_left_out(tmp_path):
    whole = save(tmp_path, 90)
    save(tmp_path, 100, whole=False)
    (tmp_path / "step-110.ckpt.partial").write_bytes(b"half")
    (tmp_path / "step-last.ckpt").write_bytes(b"another's")
    assert newest_file(tmp_path, suffix=".ckpt") == str(whole)
    assert newest_file(tmp_path / "nothing", suffix=".ckpt") is None


def test_the_two_newest_files_are_kept(tmp_path):
    kept = [save(tmp_path, step) for step in (8, 90, 1000)][1:]
    remove_older_files(tmp_path, suffix=".ckpt")
    assert sorted(tmp_path.iterdir()) == sorted(kept)


def folder(directory, step):
    path = checkpoint_file(directory, step)
    (path / "part").mkdir(parents=True)
    (path / "part/weights").write_bytes(b"x" * 100)
    seal(path, {"step": step})
    return path


def test_a_folder_must_match_its_seal(tmp_path):
    first, second = folder(tmp_path, 1), folder(tmp_path, 2)
    checkpoint_file(tmp_path, 3).mkdir()
    assert newest_file(tmp_path) == str(second)
    os.truncate(second / "part/weights", 50)
    assert newest_file(tmp_path) == str(first)
    assert read_position(first) == {"step": 1.0}


@pytest.mark.parametrize("text", ["", "[]", '{"files"'])
def test_a_broken_seal_is_none(tmp_path, text):
    (folder(tmp_path, 1) / "rightsizer.json").write_text(text)
    assert newest_file(tmp_path) is None


def test_folders_are_kept_and_removed_as_files_are(tmp_path):
    for step in (1, 2, 3):
        folder(tmp_path, step)
    remove_older_files(tmp_path)
    assert newest_file(tmp_path) == str(tmp_path / "step-3")
    assert not (tmp_path / "step-1").exists()
