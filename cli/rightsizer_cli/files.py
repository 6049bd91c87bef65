"""Atomic file writes, and file errors with a remedy."""

import os
from collections.abc import Callable
from pathlib import Path

from rightsizer_cli.usage_errors import OptionError

__all__ = ["read_text", "write_whole"]


def read_text(path: Path, *, field: str) -> str:
    """The text of a file; `field` is the option or argument that named it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise OptionError(field, value=str(path), remedy="is not a text file (UTF-8)") from None
    except OSError as error:
        raise OptionError(field, value=str(path), remedy=f"cannot be read: {_reason(error)}") from None


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
            draft.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
