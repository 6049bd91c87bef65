"""Text on stdin, atomic file writes; errors with a remedy."""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rightsizer_cli.requests.usage_errors import OptionError


def read_stdin(*, field: str) -> str:
    """The text on stdin."""
    if sys.stdin is None:
        raise OptionError(field, value="-", remedy="stdin is closed; name a file")
    try:
        text = sys.stdin.read()
        text.encode()  # a surrogate stands for a byte that is no text
    except UnicodeError:
        raise OptionError(field, value="-", remedy="is not UTF-8 text") from None
    return text


def write_whole(path: Path, write: Callable[[Path], object], *, field: str) -> None:
    """Let `write` fill a draft beside `path`, then put it in place at once; on failure leave nothing.

    Other files than regular ones (/dev/stdout, a pipe) cannot be replaced; they are written directly.
    """
    if path.exists() and not path.is_file():
        draft = path
    else:
        draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(draft)
        if draft != path:
            draft.replace(path)
    except OSError as error:
        raise OptionError(field, value=str(path), remedy=f"cannot be written: {_reason(error)}") from None
    finally:
        if draft != path:
            with contextlib.suppress(OSError):  # below a file there is none
                draft.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
