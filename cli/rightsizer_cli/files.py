"""Atomic file writes, and file errors with a remedy."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rightsizer_cli.usage_errors import OptionError

__all__ = ["read_stdin", "read_text", "write_whole"]

_MOST_BYTES = 2**28
_NO_TEXT = "is not a text file (UTF-8)"


def read_text(path: Path, *, field: str) -> str:
    """The text of a file; `field` is the option or argument that named it. A device may have no end."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise OptionError(field, value=str(path), remedy=f"cannot be read: {_reason(error)}") from None
    if len(raw) > _MOST_BYTES:
        raise OptionError(field, value=str(path), remedy="has more than 256 MiB")
    return _text(raw, str(path), field)


def read_stdin(*, field: str) -> str:
    """The text on stdin."""
    if sys.stdin is None:
        raise OptionError(field, value="-", remedy="stdin is closed; name a file")
    try:
        text = sys.stdin.read()
        text.encode()  # a surrogate stands for a byte that is no text
    except UnicodeError:
        raise OptionError(field, value="-", remedy=_NO_TEXT) from None
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


def _text(raw: bytes, name: str, field: str) -> str:
    """Bytes as text, with the line ends of this system."""
    try:
        return io.StringIO(raw.decode("utf-8-sig"), newline=None).read()
    except UnicodeDecodeError:
        raise OptionError(field, value=name, remedy=_NO_TEXT) from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
