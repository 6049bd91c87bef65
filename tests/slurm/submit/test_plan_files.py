"""Files that a comment's plan= may name, as real files of this machine."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.submit import plan_files

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: mine}
spec:
  model: {name: llama-3.1-8b}
  workload: {tokens: 1B}
"""


def folder(path: Path) -> None:
    path.mkdir()


def listening_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (folder, "must be a regular file"),
        (os.mkfifo, "must be a regular file"),
        (listening_socket, "must be a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "must be a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "must be a regular file"),
        (lambda path: path.symlink_to(path), "cannot be read by the daemon: Too many levels"),
        (large, "has more than 524,288 bytes"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not UTF-8 text"),
        (lambda path: None, "cannot be read by the daemon: No such file"),
    ],
    ids=["folder", "pipe", "socket", "device", "endless device", "link to itself", "large", "binary", "none"],
)
def test_a_file_that_is_no_plan_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "p")
    with pytest.raises(InputError, match=message):
        plan_files.read(str(tmp_path / "p"), uid=os.getuid())


def test_a_plan_is_read_for_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "p").write_text(PLAN)
    before = len(os.listdir("/proc/self/fd"))
    assert plan_files.read(str(tmp_path / "p"), uid=os.getuid()).metadata.name == "mine"
    with pytest.raises(InputError, match="that you own"):
        plan_files.read(str(tmp_path / "p"), uid=os.getuid() + 1)
    assert len(os.listdir("/proc/self/fd")) <= before
