"""What is being done to jobs, written down before it is done: so that after a crash nothing is done twice.

SQLite. The tables live beside the daemon's in one file, or alone; their version is their own.
"""

import enum
import sqlite3
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rightsizer.errors import InputError
from rightsizer.values import immutable

__all__ = ["CLOSED", "Intent", "Journal", "Kind", "Stage"]

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS monitor_version (version INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS monitor_intents (
    number INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    from_nodes INTEGER NOT NULL,
    to_nodes INTEGER NOT NULL,
    node_cores INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    patience_s REAL NOT NULL,
    stage TEXT NOT NULL,
    asks INTEGER NOT NULL,
    began_s REAL NOT NULL,
    changed_s REAL NOT NULL,
    why TEXT NOT NULL,
    said TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS monitor_one_open ON monitor_intents (job_id)
    WHERE stage NOT IN ('done', 'failed', 'overtaken');
CREATE TABLE IF NOT EXISTS monitor_told (
    job_id INTEGER NOT NULL,
    channel TEXT NOT NULL,
    text TEXT NOT NULL,
    told_s REAL NOT NULL,
    PRIMARY KEY (job_id, channel)
) STRICT;
"""


class Kind(enum.StrEnum):
    """How a size is changed: nodes taken from a running job, or save, requeue, change, release."""

    SHRINK = "shrink"
    REQUEUE = "requeue"


class Stage(enum.StrEnum):
    """How far it has come. Each is written down before the command that it stands for is given."""

    PLANNED = "planned"
    ASKED = "asked"
    SIZED = "sized"
    RELEASED = "released"
    UNDOING = "undoing"
    DONE = "done"
    FAILED = "failed"
    OVERTAKEN = "overtaken"


CLOSED = (Stage.DONE, Stage.FAILED, Stage.OVERTAKEN)


@immutable
class Intent:
    """One change of size. `restarts` is the job's count when it began: a higher one means it was requeued.

    `patience_s` is how long the job may take to save and stop; `asks` how often it was asked. Moments are
    seconds since the epoch.
    """

    number: int = 0
    job_id: int
    kind: Kind
    from_nodes: int
    to_nodes: int
    node_cores: int
    restarts: int
    patience_s: float = 300.0
    stage: Stage = Stage.PLANNED
    asks: int = 0
    began_s: float = 0.0
    changed_s: float = 0.0
    why: str = ""
    said: str = ""


_COLUMNS = tuple(f.name for f in fields(Intent))


class Journal:
    """The file."""

    def __init__(self, path: Path | str, *, read_only: bool = False) -> None:
        """Open or make the tables; InputError where the file is of a later rightsizer, or no such file."""
        try:
            if read_only:
                self._db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
                return
            if isinstance(path, Path):
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30.0)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            row = self._db.execute("SELECT version FROM monitor_version").fetchone()
            if row is None:
                self._db.execute("INSERT INTO monitor_version VALUES (?)", (_VERSION,))
        except (sqlite3.DatabaseError, OSError) as error:
            raise InputError("state", value=str(path), remedy=f"cannot be used: {error}") from None
        if row is not None and row[0] > _VERSION:
            raise InputError("state", value=str(path), remedy="was written by a later rightsizer")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def plan(self, intent: Intent) -> Intent:
        """Write a new intent down. InputError where the job has one that is not done yet."""
        now_s = time.time()
        made = replace(intent, began_s=intent.began_s or now_s, changed_s=now_s)
        names = _COLUMNS[1:]
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT INTO monitor_intents ({', '.join(names)}) VALUES ({marks})"  # noqa: S608
        try:
            cursor = self._db.execute(statement, [getattr(made, name) for name in names])
        except sqlite3.IntegrityError:
            raise InputError("job", value=intent.job_id, remedy="is being resized already; wait") from None
        return replace(made, number=int(cursor.lastrowid or 0))

    def write(self, intent: Intent) -> Intent:
        """Note how far an intent has come; on disk when this returns."""
        made = replace(intent, changed_s=time.time())
        self._db.execute(
            "UPDATE monitor_intents SET stage = ?, asks = ?, changed_s = ?, said = ? WHERE number = ?",
            (made.stage, made.asks, made.changed_s, made.said, made.number),
        )
        return made

    def open(self) -> tuple[Intent, ...]:
        """What is not done yet, the oldest first."""
        return self._select("WHERE stage NOT IN ('done', 'failed', 'overtaken') ORDER BY number")

    def of_job(self, job_id: int) -> tuple[Intent, ...]:
        """All that was ever done to a job, the oldest first."""
        return self._select("WHERE job_id = ? ORDER BY number", job_id)

    def recent(self, most: int = 20) -> tuple[Intent, ...]:
        """The newest intents, the newest first."""
        return self._select("ORDER BY number DESC LIMIT ?", most)

    def tell(self, job_id: int, channel: str, text: str, *, again_s: float, now_s: float) -> bool:
        """Whether to say this now, noted: not if this channel said the same within `again_s`."""
        row = self._db.execute(
            "SELECT text, told_s FROM monitor_told WHERE job_id = ? AND channel = ?", (job_id, channel)
        ).fetchone()
        if row is not None and row[0] == text and now_s - row[1] < again_s:
            return False
        self._db.execute(
            "INSERT INTO monitor_told VALUES (?, ?, ?, ?) ON CONFLICT (job_id, channel)"
            " DO UPDATE SET text = excluded.text, told_s = excluded.told_s",
            (job_id, channel, text, now_s),
        )
        return True

    def _select(self, rest: str, *values: int) -> tuple[Intent, ...]:
        columns = ", ".join(_COLUMNS)
        rows = self._db.execute(f"SELECT {columns} FROM monitor_intents {rest}", values)  # noqa: S608
        return tuple(_intent(dict(zip(_COLUMNS, row, strict=True))) for row in rows)


def _intent(values: dict[str, Any]) -> Intent:
    kind, stage = Kind(values.pop("kind")), Stage(values.pop("stage"))
    return Intent(kind=kind, stage=stage, **values)
