"""The file of `rightsizer: plan=FILE`, read by the daemon for a user.

The daemon can read files that the user cannot. So the file must belong to the user, and no file that it names
is read. It must be a regular file: a pipe would block, and opening a device may change it.
"""

import os
import stat
from pathlib import Path, PurePosixPath

from rightsizer_api import TrainingPlan, loads
from rightsizer_engine.errors import InputError

_LONGEST = 524_288
_SMALL = 16_384
"""Bytes that are parsed in some milliseconds."""


def read(path: str, *, uid: int) -> TrainingPlan:
    """The plan in a user's file. InputError, which quotes no other user's file, if it is unreadable."""
    return _plan(path, _checked(path, uid))


def read_small(path: str, uid: int) -> TrainingPlan | None:
    """The file as from `read`; None if it is large, so that parsing it would take long."""
    content = _checked(path, uid)
    return None if _SMALL < len(content) <= _LONGEST else _plan(path, content)


def _checked(path: str, uid: int) -> bytes:
    if not path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise InputError("plan", value=path, remedy="must be an absolute path without ..")
    try:
        return _content(path, uid)
    except OSError as error:
        remedy = (
            f"cannot be read by the daemon: {error.strerror}; use rightsizer sbatch, which reads it as you,"
            " or put it where the daemon can read it: in the mode enforce it must"
        )
        raise InputError("plan", value=path, remedy=remedy) from None


def _plan(path: str, content: bytes) -> TrainingPlan:
    if len(content) > _LONGEST:
        raise InputError("plan", value=path, remedy=f"has more than {_LONGEST:,} bytes")
    try:
        return loads(content.decode("utf-8-sig"), name=path)
    except UnicodeDecodeError:
        raise InputError("plan", value=path, remedy="is not UTF-8 text") from None


def _content(path: str, uid: int) -> bytes:
    """The first bytes of the file. It is opened for reading only after the check: that file, and no other."""
    located = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(located)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise InputError("plan", value=path, remedy="must be a regular file that you own")
        with Path(f"/proc/self/fd/{located}").open("rb") as file:
            return file.read(_LONGEST + 1)
    finally:
        os.close(located)
