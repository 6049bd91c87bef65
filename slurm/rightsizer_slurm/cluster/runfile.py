"""slurm.json in a run's directory: how the job was sized. The monitor and `slurm resize` read it."""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from rightsizer_api.placeholders import layout_of
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import write_json

NAME = "slurm.json"
_MOST_BYTES = 4 * 2**20
_MOST_COUNT = 2**20  # nodes, or GPUs or cores of one
_MOST_NUMBER = 2.0**53


@immutable
class RunFile:
    """The size and the submit of a job.

    `nodes` of `node_gpus` GPUs and `node_cores` cores each; an `elastic` job may run on `fewest_nodes` to
    `most_nodes`. `layout` has wire names as keys. `deadline_at_s` is in seconds since the epoch; None without
    a deadline. A job with `first_look_s` opened at its likely size: after so much training its rate is known,
    and `most_nodes` is its reserve. `decision` is the line with size, layout, price and the constraint that
    prevents a smaller size.
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
    first_look_s: float | None = None
    decision: str = ""


def write(folder: Path, record: RunFile) -> None:
    """Replace the file atomically."""
    write_json(folder / NAME, asdict(record))


def read(folder: Path) -> RunFile | None:
    """The record; None if there is no file. InputError if it is invalid."""
    try:
        text = (folder / NAME).read_text()
    except FileNotFoundError:
        return None
    return _parsed(text, str(folder / NAME))


def read_own(folder: Path, *, owner: int) -> RunFile | None:
    """The record of a user's run; None unless the file is readable and belongs to `owner`."""
    text = text_of(folder / NAME, owner=owner)
    return None if text is None else _parsed(text, str(folder / NAME))


def text_of(
    path: Path, *, owner: int, tail_bytes: int | None = None, most_bytes: int = _MOST_BYTES
) -> str | None:
    """The text of a user's file, or its last bytes; None if it is missing, too large, or not theirs.

    The path comes from a job's comment, which its user wrote: only a regular file of that user is read, so
    that a link cannot expose another file and a pipe cannot block.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            return None
        if tail_bytes is not None:
            file.seek(max(0, status.st_size - tail_bytes))
        elif status.st_size > most_bytes:
            return None
        return file.read(tail_bytes or most_bytes).decode(errors="replace")


def _parsed(text: str, path: str) -> RunFile:
    try:
        document = json.loads(text)
        known = {f.name: document[f.name] for f in fields(RunFile) if f.name in document}
        record = RunFile(**known)
        layout_of(record.layout)
        sound = _is_sound(record)
    except (ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        remedy = "is not a valid record of rightsizer sbatch; remove it to start over"
        raise InputError("run directory", value=path, remedy=remedy) from None
    return record


def _is_sound(record: RunFile) -> bool:
    """Whether every field has its type and a possible value: the job's user can write the file."""
    counts = (record.nodes, record.node_gpus, record.node_cores, record.fewest_nodes, record.most_nodes)
    rest = (record.job_id, record.batch_sequences)
    numbers = (record.batch_tokens, record.step_s, record.submitted_at_s)
    optional = (record.checkpoint_interval_s, record.deadline_at_s, record.first_look_s)
    texts = (record.plan, record.partition, record.gres, record.gpu, record.decision)
    return (
        all(type(count) is int and 1 <= count <= _MOST_COUNT for count in counts)
        and all(type(count) is int and 0 <= count < _MOST_NUMBER for count in rest)
        and all(type(n) in {int, float} and 0 <= n < _MOST_NUMBER for n in numbers)
        and all(n is None or (type(n) in {int, float} and 0 < n < _MOST_NUMBER) for n in optional)
        and all(type(text) is str for text in texts)
        and type(record.elastic) is bool
    )
