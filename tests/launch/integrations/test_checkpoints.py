import json

import pytest

from rightsizer_launch.integrations.checkpoints import newest_checkpoint, newest_dcp_checkpoint


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
