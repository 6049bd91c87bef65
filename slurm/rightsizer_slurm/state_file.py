"""The state file (SQLite) of the daemon and the monitor: its schema, its migrations, its connections.

`submit.ticket_store` owns the tables tickets and subjects, `monitor.intent_log` owns intents and notices.
Every write is on disk when the call returns, before the command that it announces is given to Slurm.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from rightsizer_engine.errors import InputError

SITE = Path("/var/lib/rightsizer/state.db")
"""The daemon's file."""

_LOCK_TIMEOUT_S = 30.0
_CLOSED = "('done', 'failed', 'overtaken')"
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE tickets (
            name TEXT PRIMARY KEY,
            made_s REAL NOT NULL,
            question TEXT NOT NULL,
            answer TEXT,
            job_id INTEGER
        ) STRICT""",
    ),
    (
        """CREATE TABLE subjects (
            subject TEXT PRIMARY KEY,
            asked_s REAL NOT NULL,
            comment TEXT NOT NULL
        ) STRICT""",
    ),
    (  # until version 3 the monitor made its tables itself, in this file or in one of its own
        """CREATE TABLE IF NOT EXISTS monitor_intents (
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
        ) STRICT""",
        "ALTER TABLE monitor_intents RENAME TO intents",
        "ALTER TABLE intents RENAME COLUMN patience_s TO stop_timeout_s",
        "ALTER TABLE intents RENAME COLUMN asks TO attempts",
        "ALTER TABLE intents RENAME COLUMN why TO reason",
        "ALTER TABLE intents RENAME COLUMN said TO outcome",
        "DROP INDEX IF EXISTS monitor_one_open",
        f"CREATE UNIQUE INDEX one_open_intent_of_a_job ON intents (job_id) WHERE stage NOT IN {_CLOSED}",
        """CREATE TABLE IF NOT EXISTS monitor_told (
            job_id INTEGER NOT NULL,
            channel TEXT NOT NULL,
            text TEXT NOT NULL,
            told_s REAL NOT NULL,
            PRIMARY KEY (job_id, channel)
        ) STRICT""",
        "ALTER TABLE monitor_told RENAME TO notices",
        "ALTER TABLE notices RENAME COLUMN told_s TO sent_s",
        "DROP TABLE IF EXISTS monitor_version",
    ),
    (
        "ALTER TABLE tickets RENAME COLUMN question TO request",
        "ALTER TABLE tickets RENAME COLUMN answer TO response",
        "ALTER TABLE subjects RENAME COLUMN asked_s TO requested_s",
    ),
)
"""The statements from each version of the file to the next."""
VERSION = len(_MIGRATIONS)
_OLDEST_READABLE = 3
"""The monitor's tables, which are all that a reader needs, are as they were in this version."""


def default_path(site: Path = SITE, *, home: Path | None = None) -> Path:
    """The site's file for those who may write it (the daemon's user, root), else one of the user's own."""
    if os.access(site.parent, os.W_OK | os.X_OK) or os.geteuid() == 0:
        return site
    return (home or Path.home()) / ".local/state/rightsizer/monitor.db"


def connect(path: Path | str, *, read_only: bool = False) -> sqlite3.Connection:
    """Open the file, make it or migrate it. InputError if it is unusable or of another version.

    A reader changes nothing: it also reads a file that the upgraded daemon or monitor has yet to migrate.
    """
    try:
        if read_only:
            db = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None)
        else:
            db = _writable(path)
        version = _version(db)
    except (sqlite3.DatabaseError, OSError) as error:
        raise InputError("state", value=str(path), remedy=f"cannot be used: {error}") from None
    if not (_OLDEST_READABLE if read_only else VERSION) <= version <= VERSION:
        db.close()
        age = "a later" if version > VERSION else "an earlier"
        remedy = f"was written by {age} rightsizer (version {version}; this one reads {VERSION})"
        raise InputError("state", value=str(path), remedy=remedy)
    return db


def _writable(path: Path | str) -> sqlite3.Connection:
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_LOCK_TIMEOUT_S)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    if _version(db) < VERSION:
        _migrate(db)
    return db


def _migrate(db: sqlite3.Connection) -> None:
    """All missing versions in one transaction: after a crash the file has the old version or the new one."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        for statements in _MIGRATIONS[_version(db) :]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


class BusyError(InputError):
    """Another monitor uses the same state file."""


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the state file's lock: one monitor at a time. BusyError if another process has it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise InputError("--state", value=str(path), remedy=f"cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError("--state", value=str(path), remedy="another monitor uses it") from None
        yield
