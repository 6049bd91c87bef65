"""Environment variables, files and records that a job writes and its supervisor reads. Standard library only.

Rank 0 appends one JSON object per line to `progress.jsonl` in the run's directory. Each line is one write
call, and a reader leaves an incomplete last line for its next read.
"""

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Any

from rightsizer_engine.values import immutable

ENV_DIE_WITH_PARENT = "RIGHTSIZER_DIE_WITH_PARENT"
"""Set if the process must get SIGTERM when its supervisor dies; a job saves first."""
ENV_RUN_DIRECTORY = "RIGHTSIZER_RUN_DIRECTORY"
"""The directory of the job's files; set if rightsizer started the process."""
ENV_ATTEMPT = "RIGHTSIZER_ATTEMPT"
"""The attempt's number, from 1. A new layout or a restart of all agents is a new attempt."""
ENV_CHECKPOINT_INTERVAL_S = "RIGHTSIZER_CHECKPOINT_INTERVAL_S"
"""Seconds between periodic checkpoints."""
ENV_FIRST_CHECKPOINT_S = "RIGHTSIZER_FIRST_CHECKPOINT_S"
"""Seconds from a start to its first checkpoint, if that is sooner than the interval."""
ENV_CHECKPOINT_PATH = "RIGHTSIZER_CHECKPOINT_PATH"
"""Where checkpoints go."""
ENV_METRICS_PORT = "RIGHTSIZER_METRICS_PORT"
"""Port of rank 0's Prometheus metrics; unset: no metrics."""
ENV_METRICS_ADDRESS = "RIGHTSIZER_METRICS_ADDRESS"
"""Address it listens on; 127.0.0.1 unless set (a pod sets its own)."""
ENV_OUTCOME = "RIGHTSIZER_OUTCOME_FILE"
"""File by which a worker reports to the entrypoint that it saved and stopped on request."""

ENV_RENDEZVOUS_KEY_FILE = "RIGHTSIZER_RENDEZVOUS_KEY_FILE"
"""A file with the secret that signs the values of this attempt's rendezvous (`signed_rendezvous`)."""

ENV_RESTART_LIMIT = "RIGHTSIZER_RESTART_LIMIT"
"""Worker failures allowed within a window; set if there is no supervisor, as in a pod."""

PROGRESS = "progress.jsonl"
DONE = "done.json"
STEP = "step"
CHECKPOINTS = "checkpoints"
VOLUNTARY_RESTARTS = "come-backs"
"""File with one byte for each restart caused by another pod's stop, which is not a failure."""

_MOST = 2.0**53  # the integers that a float holds exactly
_COUNTS = ("attempt", "restart", "world", "step")

EXIT_STOPPED = 75
"""The entrypoint's exit code for a job that stopped on request, saved (EX_TEMPFAIL: try again later)."""

STOP_SIGNAL = signal.SIGURG
"""The entrypoint takes it for SIGTERM; other programs of the step, which get it too, ignore it by default."""


@immutable
class Record:
    """One line of progress: `event` is start, step, checkpoint, stop or finish.

    `step` and `tokens` count from the beginning of the training, `step_s` is the last step's duration,
    `restart` torchrun's restarts within the attempt; `peak_bytes` the allocator's peak so far on the
    fullest GPU, if measured; `data_wait_s` how long rank 0 waited for the step's data, if the
    script measures it; `pids` (start only) are the workers' by rank. `time` is that of the machine's
    clock, `uptime_s` of one that nobody sets.
    """

    event: str
    time: float
    uptime_s: float = 0.0
    attempt: int = 1
    restart: int = 0
    world: int = 1
    step: int = 0
    tokens: float = 0.0
    loss: float | None = None
    step_s: float = 0.0
    tokens_per_s: float = 0.0
    peak_bytes: float | None = None
    data_wait_s: float | None = None
    path: str = ""
    pids: tuple[int, ...] = ()
    layout: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> "Record":
        """The record of one line; fields of a later version are ignored.

        ValueError or TypeError unless every field has its type: the training's user can write the file.
        """
        try:
            document = json.loads(line)
        except RecursionError:
            raise ValueError("not a record: nested too deeply") from None
        if not isinstance(document, dict):
            raise TypeError(f"not a record: {line[:40]!r}")
        known = {f.name: document[f.name] for f in fields(cls) if f.name in document}
        # a script may count its steps in floats
        whole = {name: int(n) for name in _COUNTS if type(n := known.get(name)) is float and n.is_integer()}
        record = cls(**known | whole | {"pids": tuple(known.get("pids", ()))})
        if not _is_sound(record):
            raise ValueError(f"a field has the wrong type or an impossible value: {line[:40]!r}")
        return record


def _is_sound(record: Record) -> bool:
    """Whether numbers are finite, not negative and within bounds, texts are texts. A loss may be anything."""
    optional = tuple(n for n in (record.peak_bytes, record.data_wait_s) if n is not None)
    counts = (*(getattr(record, name) for name in _COUNTS), *record.pids)
    times = (record.time, record.uptime_s, record.step_s)
    numbers = (*times, record.tokens, record.tokens_per_s, *counts, *optional)
    return (
        all(type(number) in {int, float} and 0 <= number < _MOST for number in numbers)
        and all(type(count) is int for count in counts)
        and (record.loss is None or type(record.loss) in {int, float})
        and isinstance(record.layout, dict)
        and all(type(text) is str for text in (record.event, record.path))
    )


def data_wait_fraction(steps: Sequence[Record], *, over_s: float) -> float | None:
    """The share of `over_s` spent waiting for these steps' data; None if the script does not measure it."""
    waits = [record.data_wait_s for record in steps if record.data_wait_s is not None]
    return min(1.0, sum(waits) / over_s) if waits and over_s > 0 else None


def checkpoint_after_s(*, saved: bool, environment: Mapping[str, str] = os.environ) -> float:
    """Seconds from the start (`saved`: from the last checkpoint) to the next checkpoint."""
    interval_s = float(environment.get(ENV_CHECKPOINT_INTERVAL_S, "inf"))
    return interval_s if saved else min(interval_s, float(environment.get(ENV_FIRST_CHECKPOINT_S, "inf")))


def append(path: Path, record: Record) -> None:
    """Append one line in one write, without empty fields.

    A full disk does not end the training: the record is left out as a whole, and stderr says so.
    """
    line = {key: value for key, value in asdict(record).items() if value not in (None, "", (), {}, [])}
    text = json.dumps(line).encode() + b"\n"
    try:
        with path.open("ab", buffering=0) as file:
            size = file.tell()
            if file.write(text) < len(text):
                file.truncate(size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        sys.stderr.write(f"rightsizer: {path}: no record of step {record.step}: {error.strerror}\n")


def note_step(step: int, environment: Mapping[str, str] = os.environ) -> None:
    """Pass the newest step to the entrypoint; in a pod without rank 0 only this records it."""
    outcome = environment.get(ENV_OUTCOME)
    if outcome and ENV_RESTART_LIMIT in environment and environment.get("LOCAL_RANK", "0") == "0":
        Path(outcome).with_name(STEP).write_text(str(step))


def last_numbers(environment: Mapping[str, str] = os.environ) -> str:
    """The numbers with which this process's training ended, as JSON; empty if it did not report its end."""
    path = Path(environment.get(ENV_RUN_DIRECTORY, ".")) / DONE
    return path.read_text() if path.exists() else ""


def restarts(environment: Mapping[str, str] = os.environ) -> int:
    """Failures after which torchrun restarted this pod's workers; a stop for another pod's sake is none."""
    outcome = environment.get(ENV_OUTCOME)
    voluntary = Path(outcome).with_name(VOLUNTARY_RESTARTS) if outcome else None
    excused = voluntary.stat().st_size if voluntary and voluntary.exists() else 0
    return max(0, int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")) - excused)


def write_json(path: Path, document: Any) -> None:
    """Replace a JSON file atomically."""
    replace_text(path, json.dumps(document, indent=2) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Replace a file atomically. On a full disk the old one stays, and the OSError names the file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with naming(path):
            temporary.write_text(text)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError of the block names this file: that of a write names none."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


class ProgressReader:
    """Reads the records appended since the last call."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        self._path = path
        self.offset = offset

    def read(self) -> list[Record]:
        """The new complete lines as records; a line torn by a crash is skipped."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self.offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self.offset += len(whole) + len(newline)
        records = []
        for line in whole.splitlines():
            try:
                records.append(Record.parse(line.decode()))
            except (ValueError, TypeError):
                continue
        return records
