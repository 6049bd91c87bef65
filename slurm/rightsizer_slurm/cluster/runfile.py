"""slurm.json in a run's directory: how the job was sized, so that it can be watched and resized."""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from rightsizer.errors import InputError
from rightsizer.values import immutable
from rightsizer_launch.worker.progress import write_json

__all__ = ["NAME", "RunFile", "read", "read_own", "text_of", "write"]

NAME = "slurm.json"
_MOST_BYTES = 4 * 2**20


@immutable
class RunFile:
    """How a job was sized and submitted.

    `nodes` of `node_gpus` GPUs and `node_cores` cores each; an `elastic` one may go on with `fewest_nodes` to
    `most_nodes`. `layout` holds the layout under its wire names. `deadline_at_s` is a moment, seconds since
    the epoch; None without a deadline.
    """

    job_id: int = 0
    plan: str = ""
    partition: str = ""
    gres: str = ""
    gpu: str = ""
    nodes: int = 1
    node_gpus: int = 1
    node_cores: int = 1
    elastic: bool = False
    fewest_nodes: int = 1
    most_nodes: int = 1
    layout: Mapping[str, Any] = field(default_factory=dict)
    batch_sequences: int = 0
    batch_tokens: float = 0.0
    step_s: float = 0.0
    checkpoint_interval_s: float | None = None
    submitted_at_s: float = 0.0
    deadline_at_s: float | None = None


def write(folder: Path, record: RunFile) -> None:
    """Replace the file at once."""
    write_json(folder / NAME, asdict(record))


def read(folder: Path) -> RunFile | None:
    """The record; None where there is none. InputError where it is no such record."""
    try:
        text = (folder / NAME).read_text()
    except FileNotFoundError:
        return None
    return _parsed(text, str(folder / NAME))


def read_own(folder: Path, *, owner: int) -> RunFile | None:
    """The record of somebody's run; None where there is none that is theirs and readable."""
    text = text_of(folder / NAME, owner=owner)
    return None if text is None else _parsed(text, str(folder / NAME))


def text_of(path: Path, *, owner: int, tail_bytes: int | None = None) -> str | None:
    """A user's file, read by someone else: only a regular file of theirs, whole if small, or its last bytes.

    The path comes from a job's comment, which its user wrote: a link to another's file is not read, and no
    pipe is waited for. None where there is no such file, or one too large to be read whole.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
            return None
        if tail_bytes is not None:
            file.seek(max(0, found.st_size - tail_bytes))
        elif found.st_size > _MOST_BYTES:
            return None
        return file.read(tail_bytes or _MOST_BYTES).decode(errors="replace")


def _parsed(text: str, path: str) -> RunFile:
    try:
        document = json.loads(text)
        known = {f.name: document[f.name] for f in fields(RunFile) if f.name in document}
        return RunFile(**known)
    except (ValueError, TypeError):
        remedy = "is not a record of rightsizer sbatch; remove it to start over"
        raise InputError("run directory", value=path, remedy=remedy) from None
