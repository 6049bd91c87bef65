"""The monitor's tables in the state file: resizes under way (intents), and the notices that were sent.

An intent is on disk before its command is given, so that no command is given twice after a crash.
"""

import enum
import sqlite3
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_slurm import state_file


class Kind(enum.StrEnum):
    """The kind of a change of a job.

    Nodes are taken while it runs; or it is saved, requeued and released at another size; or it is saved,
    requeued and stays held.
    """

    SHRINK = "shrink"
    REQUEUE = "requeue"
    SUSPEND = "suspend"


class IntentStage(enum.StrEnum):
    """Progress of an intent. Each stage is on disk before its command is given."""

    PLANNED = "planned"
    ASKED = "asked"
    SIZED = "sized"
    RELEASED = "released"
    UNDOING = "undoing"
    DONE = "done"
    FAILED = "failed"
    OVERTAKEN = "overtaken"


CLOSED = (IntentStage.DONE, IntentStage.FAILED, IntentStage.OVERTAKEN)


@immutable
class Intent:
    """One change of size. `restarts` is the job's count at the beginning: a higher one means a requeue.

    `stop_timeout_s` is how long the job may take to save and stop, `attempts` how often it got the command.
    Times are seconds since the epoch.
    """

    number: int = 0
    job_id: int
    kind: Kind
    from_nodes: int
    to_nodes: int
    node_cores: int
    restarts: int
    stop_timeout_s: float = 300.0
    stage: IntentStage = IntentStage.PLANNED
    attempts: int = 0
    began_s: float = 0.0
    changed_s: float = 0.0
    reason: str = ""
    outcome: str = ""


_COLUMNS = tuple(f.name for f in fields(Intent))


class IntentLog:
    """The tables. A change is on disk when the call returns."""

    def __init__(
        self, path: Path | str, *, read_only: bool = False, clock: Callable[[], float] = time.time
    ) -> None:
        self._db = state_file.connect(path, read_only=read_only)
        self._clock = clock

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def plan(self, intent: Intent) -> Intent:
        """Store a new intent. InputError if the job has an open one."""
        now_s = self._clock()
        made = replace(intent, began_s=intent.began_s or now_s, changed_s=now_s)
        names = _COLUMNS[1:]
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT INTO intents ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        try:
            cursor = self._db.execute(statement, [getattr(made, name) for name in names])
        except sqlite3.IntegrityError:
            raise InputError("job", value=intent.job_id, remedy="is being resized already; wait") from None
        return replace(made, number=int(cursor.lastrowid or 0))

    def write(self, intent: Intent) -> Intent:
        """Store the stage of an intent; on disk when this returns."""
        made = replace(intent, changed_s=self._clock())
        self._db.execute(
            "UPDATE intents SET stage = ?, attempts = ?, changed_s = ?, outcome = ? WHERE number = ?",
            (made.stage, made.attempts, made.changed_s, made.outcome, made.number),
        )
        return made

    def open(self) -> tuple[Intent, ...]:
        """Open intents, the oldest first."""
        return self._select("WHERE stage NOT IN ('done', 'failed', 'overtaken') ORDER BY number")

    def of_job(self, job_id: int) -> tuple[Intent, ...]:
        """All intents of a job, the oldest first."""
        return self._select("WHERE job_id = ? ORDER BY number", job_id)

    def recent(self, most: int = 20) -> tuple[Intent, ...]:
        """The newest intents, the newest first."""
        return self._select("ORDER BY number DESC LIMIT ?", most)

    def claim_notice(self, job_id: int, channel: str, text: str, *, again_s: float, now_s: float) -> bool:
        """Whether to send this notice now; not if this channel sent the same within `again_s`. Records it."""
        row = self._db.execute(
            "SELECT text, sent_s FROM notices WHERE job_id = ? AND channel = ?", (job_id, channel)
        ).fetchone()
        if row is not None and row[0] == text and now_s - row[1] < again_s:
            return False
        self._db.execute(
            "INSERT INTO notices VALUES (?, ?, ?, ?) ON CONFLICT (job_id, channel)"
            " DO UPDATE SET text = excluded.text, sent_s = excluded.sent_s",
            (job_id, channel, text, now_s),
        )
        return True

    def _select(self, rest: str, *values: int) -> tuple[Intent, ...]:
        columns = ", ".join(_COLUMNS)
        rows = self._db.execute(f"SELECT {columns} FROM intents {rest}", values)  # noqa: S608
        return tuple(_intent(dict(zip(_COLUMNS, row, strict=True))) for row in rows)


def _intent(values: dict[str, Any]) -> Intent:
    kind, stage = Kind(values.pop("kind")), IntentStage(values.pop("stage"))
    return Intent(kind=kind, stage=stage, **values)
