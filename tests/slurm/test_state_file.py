"""One state file for the daemon and the monitor; files of earlier versions keep their contents."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.monitor.intent_log import IntentLog, IntentStage
from rightsizer_slurm.submit.protocol import SizingVerdict
from rightsizer_slurm.submit.ticket_store import TicketStore

TICKETS = """
CREATE TABLE tickets (name TEXT PRIMARY KEY, made_s REAL NOT NULL, question TEXT NOT NULL, answer TEXT,
    job_id INTEGER) STRICT;
INSERT INTO tickets (name, made_s, question) VALUES ('ab12', 10.0, '{"comment": "rightsizer: x"}');
"""
SUBJECTS = """
CREATE TABLE subjects (subject TEXT PRIMARY KEY, asked_s REAL NOT NULL, comment TEXT NOT NULL) STRICT;
"""
MONITOR = """
CREATE TABLE monitor_version (version INTEGER NOT NULL) STRICT;
INSERT INTO monitor_version VALUES (1);
CREATE TABLE monitor_intents (number INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, kind TEXT NOT NULL,
    from_nodes INTEGER NOT NULL, to_nodes INTEGER NOT NULL, node_cores INTEGER NOT NULL,
    restarts INTEGER NOT NULL, patience_s REAL NOT NULL, stage TEXT NOT NULL, asks INTEGER NOT NULL,
    began_s REAL NOT NULL, changed_s REAL NOT NULL, why TEXT NOT NULL, said TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX monitor_one_open ON monitor_intents (job_id)
    WHERE stage NOT IN ('done', 'failed', 'overtaken');
INSERT INTO monitor_intents VALUES (1, 7, 'requeue', 2, 4, 8, 0, 150.0, 'asked', 1, 5.0, 6.0, 'late', '');
CREATE TABLE monitor_told (job_id INTEGER NOT NULL, channel TEXT NOT NULL, text TEXT NOT NULL,
    told_s REAL NOT NULL, PRIMARY KEY (job_id, channel)) STRICT;
INSERT INTO monitor_told VALUES (7, 'mail', 'grow', 5.0);
"""
VERSION_3 = (Path(__file__).parent / "state_version_3.sql").read_text()


def written(path: Path, script: str, version: int) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript(f"{script} PRAGMA user_version = {version};")
    db.close()
    return path


@pytest.mark.parametrize(
    ("script", "version", "tickets", "open_intents"),
    [
        ("", 0, 0, 0),
        (TICKETS, 1, 1, 0),
        (TICKETS + SUBJECTS, 2, 1, 0),
        (TICKETS + SUBJECTS + MONITOR, 2, 1, 1),
        (MONITOR, 0, 0, 1),
        (VERSION_3, 3, 2, 1),
    ],
    ids=["new", "first daemon", "second daemon", "daemon with monitor", "monitor alone", "one file"],
)
def test_files_of_earlier_versions_keep_what_they_hold(
    tmp_path: Path, script: str, version: int, tickets: int, open_intents: int
) -> None:
    path = written(tmp_path / "state.db", script, version)
    store, log = TicketStore(path), IntentLog(path)
    assert (len(store.tickets()), len(log.open())) == (tickets, open_intents)
    store.close()
    log.close()


def test_an_open_intent_of_an_earlier_version_is_finished(tmp_path: Path) -> None:
    log = IntentLog(written(tmp_path / "state.db", MONITOR, 0))
    (intent,) = log.open()
    assert (intent.stage, intent.stop_timeout_s, intent.reason) == ("asked", 150.0, "late")
    with pytest.raises(InputError, match="is being resized already"):
        log.plan(intent)
    assert not log.claim_notice(7, "mail", "grow", again_s=60.0, now_s=10.0)  # this mail was sent before
    log.write(replace(intent, stage=IntentStage.DONE))
    assert log.open() == ()
    log.close()


def test_tickets_of_version_3_keep_their_requests_and_responses(tmp_path: Path) -> None:
    store = TicketStore(written(tmp_path / "state.db", VERSION_3, 3))
    waiting, sized = store.tickets()
    assert (waiting.request.max_nodes, waiting.request.user, waiting.response) == (2, "alice", None)
    assert sized.response is not None
    assert (sized.job_id, sized.response.verdict, sized.response.fields["max_nodes"]) == (
        42,
        SizingVerdict.OK,
        1,
    )
    assert store.comments(1) == ("rightsizer: model=gpt2 tokens=1B",)
    store.close()
    again = TicketStore(tmp_path / "state.db")
    assert again.tickets() == (waiting, sized)
    again.close()


def test_a_reader_reads_a_file_of_version_3_before_the_daemon_migrates_it(tmp_path: Path) -> None:
    path = written(tmp_path / "state.db", VERSION_3, 3)
    log = IntentLog(path, read_only=True)
    assert [(intent.job_id, intent.to_nodes) for intent in log.recent()] == [(7, 4)]
    log.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    db.close()


@pytest.mark.parametrize(("version", "age"), [(99, "a later"), (2, "an earlier")])
def test_a_reader_changes_no_file_of_another_version(tmp_path: Path, version: int, age: str) -> None:
    path = written(tmp_path / "state.db", TICKETS + SUBJECTS, version)
    with pytest.raises(InputError, match=f"was written by {age} rightsizer"):
        IntentLog(path, read_only=True)
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (version,)
    db.close()


def test_a_migration_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = written(tmp_path / "state.db", TICKETS + SUBJECTS + "CREATE TABLE notices (x TEXT);", 2)
    with pytest.raises(InputError, match="cannot be used"):
        TicketStore(path)
    with sqlite3.connect(path) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert (names, db.execute("PRAGMA user_version").fetchone()) == (
            {"tickets", "subjects", "notices"},
            (2,),
        )
    db.close()
