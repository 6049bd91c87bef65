"""The tokens of a data set's file on this machine, from the bytes of its text."""

import importlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.units import format_tokens
from rightsizer_engine.values import immutable

_BYTES_PER_TOKEN = 4.0
"""Bytes of UTF-8 text a token: the rule of thumb of four English characters. Code and other languages take
fewer bytes a token, by up to a half. A guess."""

_LONGEST_LINE = 64 * 2**20
_BLOCK = 2**20
_FLAG = "--dataset"


@immutable
class Counted:
    """Tokens of one pass over a file, and the rule by which they were counted."""

    tokens: float
    rule: str


def counted(path: Path) -> Counted:
    """The tokens of a .jsonl, .txt or .parquet file; raises OptionError for anything else."""
    readers = {".jsonl": _jsonl, ".txt": _txt, ".parquet": _parquet}
    read = readers.get(path.suffix.casefold())
    if read is None:
        raise _error(path, "name a .jsonl, .txt or .parquet file (of JSON, one object a line)")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise _error(path, "is not a regular file")
        text_bytes = sum(read(path))
    except OSError as error:
        raise _error(path, f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not text_bytes:
        raise _error(path, "holds no text")
    tokens = max(1.0, text_bytes / _BYTES_PER_TOKEN)
    what = "" if read is _txt else "of its text values "
    rule = (
        f"{path.name} holds {format_tokens(tokens)} tokens: {text_bytes:,} bytes {what}at"
        f" {_BYTES_PER_TOKEN:g} bytes a token, a rule of thumb; --tokens states a tokenizer's own count"
    )
    return Counted(tokens=tokens, rule=rule)


def _txt(path: Path) -> Iterator[int]:
    with _opened(path) as file:
        while block := file.read(_BLOCK):
            if b"\0" in block:
                raise _error(path, "is binary, not text")
            yield len(block)


def _jsonl(path: Path) -> Iterator[int]:
    """The bytes of the strings of each line; names of fields are no text."""
    with _opened(path) as file:
        number = 0
        while line := file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise _error(path, f"line {number:,} is longer than {_LONGEST_LINE // 2**20} MiB")
            if not line.strip():
                continue
            try:
                yield _text_bytes(json.loads(line))
            except (ValueError, RecursionError):
                raise _error(path, f"line {number:,} is not JSON") from None


def _parquet(path: Path) -> Iterator[int]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise _error(path, "needs pyarrow to be read: pip install pyarrow") from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1024):
            yield _text_bytes(batch.to_pylist())
    except ValueError:  # pyarrow's own errors are of this kind
        raise _error(path, "is not a Parquet file") from None


def _text_bytes(value: Any) -> int:
    """The UTF-8 bytes of all strings in a value."""
    if isinstance(value, str):
        return len(value.encode(errors="surrogatepass"))
    if isinstance(value, dict):
        return sum(map(_text_bytes, value.values()))
    return sum(map(_text_bytes, value)) if isinstance(value, list) else 0


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """The file, with progress on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import open as progress

    screen = Console(stderr=True)
    return progress(
        os.fspath(path),
        "rb",
        description=f"Counting {path.name}",
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )


def _error(path: Path, remedy: str) -> OptionError:
    return OptionError(_FLAG, value=str(path), remedy=remedy)
