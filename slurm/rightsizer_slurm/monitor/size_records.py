"""sizes.jsonl in the run directory: the size of each start, and each rollback.

Only the batch script writes it (`rightsizer_slurm.monitor.rollback`). The monitor reads it as untrusted data
of the job's user.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from rightsizer_engine.resize.rollback import SizeAttempt, has_trained
from rightsizer_engine.values import immutable
from rightsizer_launch.worker.progress import Record

NAME = "sizes.jsonl"
START, BACK = "start", "back"
_MOST = 2**53


@immutable
class SizeRecord:
    """A start with `nodes` nodes (`event` start), or a rollback from `nodes` to `to_nodes` (back).

    `restart` is Slurm's count of requeues, `offset` where the start's own records begin in progress.jsonl,
    `time` is in seconds since the epoch, `why` is the reason of the rollback.
    """

    event: str
    job_id: int
    restart: int
    nodes: int
    offset: int = 0
    to_nodes: int = 0
    time: float = 0.0
    why: str = ""

    @property
    def outcome(self) -> str:
        """The rollback in one line."""
        return f"{self.why}; rolled back to {self.to_nodes} node{'s' if self.to_nodes != 1 else ''}"


def of_job(text: str, job_id: int) -> tuple[SizeRecord, ...]:
    """The lines of one job, in order; an invalid line (torn by a crash) is skipped."""
    rows = (_parsed(line) for line in text.splitlines())
    return tuple(row for row in rows if row is not None and row.job_id == job_id)


def _parsed(line: str) -> SizeRecord | None:
    try:
        document = json.loads(line)
        made = SizeRecord(**{f.name: document[f.name] for f in fields(SizeRecord) if f.name in document})
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    numbers = (made.job_id, made.restart, made.nodes, made.offset, made.to_nodes)
    sound = all(type(number) is int and 0 <= number < _MOST for number in numbers)
    dated = type(made.time) in {int, float} and 0 <= made.time < _MOST
    texts = type(made.why) is str and type(made.event) is str and made.event in {START, BACK}
    return made if sound and dated and texts else None


def append(folder: Path, row: SizeRecord) -> None:
    """Append a line in one write."""
    with (folder / NAME).open("ab", buffering=0) as file:
        file.write(json.dumps(asdict(row)).encode() + b"\n")


def given_up(rows: Sequence[SizeRecord]) -> tuple[SizeRecord, ...]:
    """The rollbacks, the oldest first."""
    return tuple(row for row in rows if row.event == BACK)


def trials(rows: Sequence[SizeRecord], progress: Path, *, node_gpus: int) -> tuple[SizeAttempt, ...]:
    """The size of each start so far, and whether it completed a step."""
    starts = [row for row in rows if row.event == START]
    ends = [*(row.offset for row in starts[1:]), None]
    return tuple(
        SizeAttempt(gpus=row.nodes * node_gpus, trained=_trained(progress, row, end, row.nodes * node_gpus))
        for row, end in zip(starts, ends, strict=True)
    )


def _trained(progress: Path, start: SizeRecord, end: int | None, gpus: int) -> bool:
    """Whether a start completed a step at its size; reads only up to the first one."""
    if not progress.exists():
        return False
    at = start.offset
    with progress.open("rb") as file:
        file.seek(at)
        for line in file:
            at += len(line)
            if end is not None and at > end:
                break
            try:
                record = Record.parse(line.decode())
            except (ValueError, TypeError):
                continue
            if has_trained(gpus, world=record.world, steps=record.event == "step"):
                return True
    return False
