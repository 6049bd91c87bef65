"""Text that others wrote: read from files within bounds, shown without control sequences."""

import errno
import io
import os
import select
import time
import unicodedata
from pathlib import Path
from typing import Any

from rightsizer_engine.errors import InputError

_WRITER_S = 2.0
"""How long a pipe may have no writer: a shell starts both ends at once."""
_REMOVED = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Control, format (such as right-to-left override), surrogate, private and unassigned; line separators."""


def read_text(path: Path, *, field: str, most_bytes: int = 2**28) -> str:
    """The text of a file that a user names; `field` is the option, argument or field that names it.

    Line ends become those of this system; a byte order mark is dropped.
    """
    raw = read_bytes(path, field=field, most_bytes=most_bytes)
    try:
        return io.StringIO(raw.decode("utf-8-sig"), newline=None).read()
    except UnicodeDecodeError:
        raise InputError(field, value=str(path), remedy="is not UTF-8 text") from None


def read_bytes(path: Path, *, field: str, most_bytes: int = 2**28) -> bytes:
    """The bytes of a file that a user names. A device may have no end, and a pipe no writer."""
    try:
        raw = _read(path, most_bytes + 1)
    except FileNotFoundError:
        raise InputError(field, value=str(path), remedy="no such file") from None
    except IsADirectoryError:
        raise InputError(field, value=str(path), remedy="is a directory; name a file") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise InputError(field, value=str(path), remedy=f"cannot be read: {_reason(error)}") from None
    if len(raw) > most_bytes:
        raise InputError(field, value=str(path), remedy=f"has more than {most_bytes:,} bytes")
    return raw


def _read(path: Path, most_bytes: int) -> bytes:
    if path.is_fifo():
        return _read_pipe(path, most_bytes)
    with path.open("rb") as file:
        return file.read(most_bytes)


def _read_pipe(path: Path, most_bytes: int) -> bytes:
    """Opened without waiting: the plain open of a pipe without a writer never returns."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as pipe:
        head = _first_byte(pipe.fileno())
        os.set_blocking(pipe.fileno(), True)
        return head + pipe.read(most_bytes - len(head))


def _first_byte(pipe: int) -> bytes:
    """The first byte, if it is there already. OSError where no process opens the pipe for writing."""
    end_s = time.monotonic() + _WRITER_S
    while time.monotonic() < end_s:
        closed = bool(select.select([pipe], [], [], 0.05)[0])
        try:
            head = os.read(pipe, 1)
        except BlockingIOError:  # a writer, which has written nothing yet
            return b""
        if head or closed:
            return head
    raise OSError(errno.EPIPE, "it is a pipe without a writer")


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def one_line(text: str, longest: int = 300) -> str:
    """Any text as one bounded line of printable ASCII, which cannot forge log lines or control terminals."""
    head = text[: longest * 4]
    line = " ".join("".join(c if " " < c <= "~" else " " for c in head).split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def printable(text: str, *, most_characters: int = 4000) -> str:
    """The text without control sequences, bounded; new lines stay.

    An escape sequence could move the cursor, forge a line or write to the clipboard (OSC 52).
    """
    head = text[:most_characters].replace("\t", " ")
    kept = "".join(c if c == "\n" or unicodedata.category(c) not in _REMOVED else "?" for c in head)
    return kept if len(text) <= most_characters else kept + "..."


def printable_strings(value: Any) -> Any:
    """Plain JSON data with every string, keys included, made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): printable_strings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [printable_strings(item) for item in value]
    return value
