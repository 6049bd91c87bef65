"""Files are there whole or not at all."""

import os
from pathlib import Path

import pytest

from rightsizer_cli.requests.files import write_whole
from rightsizer_engine.errors import InputError


def half(path: Path) -> None:
    path.write_text("half")
    raise OSError(28, "No space left on device")


def test_a_failure_keeps_the_previous_file(tmp_path):
    file = tmp_path / "out.csv"
    file.write_text("old")
    with pytest.raises(InputError, match="no space left"):
        write_whole(file, half, field="--out")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


def test_success_replaces(tmp_path):
    file = tmp_path / "out.csv"
    file.write_text("old")
    write_whole(file, lambda draft: draft.write_text("new") and None, field="--out")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["new"]


def test_a_device_is_written_not_replaced():
    write_whole(Path(os.devnull), lambda draft: draft.write_text("gone") and None, field="--out")
    assert Path(os.devnull).is_char_device()
