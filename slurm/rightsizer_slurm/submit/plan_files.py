"""The file of `rightsizer: plan=FILE`, read by the daemon for a user.

The daemon can read files that the user cannot. So the file must belong to the user and be a regular file (a
pipe would block), and no file that it names is read.
"""

import os
import stat
from pathlib import PurePosixPath

from rightsizer.errors import InputError
from rightsizer_api import TrainingPlan, loads

__all__ = ["read"]

_LONGEST = 524_288


def read(path: str, *, uid: int) -> TrainingPlan:
    """The plan in a user's file. InputError, which quotes no other user's file, if it is unreadable."""
    if not path.startswith("/") or ".." in PurePosixPath(path).parts:
        raise InputError("plan", value=path, remedy="must be an absolute path without ..")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        remedy = (
            f"cannot be read by the daemon: {error.strerror}; allow it (chmod o+r, and o+x on its folders)"
        )
        raise InputError("plan", value=path, remedy=remedy) from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid:
            raise InputError("plan", value=path, remedy="must be a regular file that you own")
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise InputError("plan", value=path, remedy=f"has more than {_LONGEST:,} bytes")
    try:
        return loads(content.decode("utf-8-sig"), name=path)
    except UnicodeDecodeError:
        raise InputError("plan", value=path, remedy="is not UTF-8 text") from None
