"""The daemon's tables in the state file: tickets of held jobs, and the models that users train here."""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.values import immutable
from rightsizer_slurm import state_file
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict

_LOG = logging.getLogger("rightsizer.slurm")
_MOST_SUBJECTS = 64
_BEGAN_S = time.time() - time.monotonic()
_Row = tuple[str, float, str, str | None, int | None]


def steady_s() -> float:
    """Seconds since the epoch by the clock of the start: a clock that is set makes no ticket overdue."""
    return _BEGAN_S + time.monotonic()


@immutable
class Ticket:
    """A held job: its request, its response once known, its job number once it is being sized.

    `made_s` is a time of `steady_s`; before `retry_s`, which is not stored, it is left alone.
    """

    name: str
    made_s: float
    request: SizingRequest
    response: SizingResponse | None = None
    job_id: int | None = None
    retry_s: float = 0.0


class TicketStore:
    """Tickets and subjects. Thread-safe.

    The tickets are in memory: a full or slow disk delays no submit and no release. `save` writes the changes
    to the file, from which the next process reads them.
    """

    def __init__(self, path: Path | str) -> None:
        self._db = state_file.connect(path)
        self._lock, self._file_lock = threading.Lock(), threading.Lock()
        self._unsaved: set[str] = set()
        self._failing = False
        self._tickets = {ticket.name: ticket for row in self._rows() if (ticket := _ticket(row))}

    def close(self) -> None:
        """Save the changes and close the file."""
        self.save()
        with self._file_lock:
            self._db.close()

    def add(self, ticket: Ticket) -> None:
        """Add the ticket of a job that is about to be held."""
        self._put(ticket.name, ticket)

    def set_response(
        self, name: str, response: SizingResponse, *, request: SizingRequest | None = None
    ) -> None:
        """Set a ticket's response; to a `request` that is no longer the ticket's it is dropped."""
        with self._lock:
            known = self._tickets.get(name)
            if known is not None and request in {None, known.request}:
                self._unsaved.add(name)
                self._tickets[name] = replace(known, response=response)

    def set_request(self, name: str, request: SizingRequest) -> None:
        """Set a ticket's request. Another request than before has no response yet."""
        with self._lock:
            known = self._tickets.get(name)
            if known is not None and known.request != request:
                self._unsaved.add(name)
                self._tickets[name] = replace(known, request=request, response=None)

    def set_job(self, name: str, job_id: int) -> None:
        """Set the number of a ticket's job, which is about to be sized."""
        self._change(name, job_id=job_id)

    def postpone(self, name: str, until_s: float) -> None:
        """Leave a ticket alone for a while."""
        self._change(name, retry_s=until_s)

    def remove(self, name: str) -> None:
        """Remove a ticket."""
        self._put(name, None)

    def tickets(self) -> tuple[Ticket, ...]:
        """Every ticket, the oldest first."""
        with self._lock:
            return tuple(self._tickets.values())

    def save(self) -> bool:
        """Write the changes to the file; False if it cannot be written. The next call tries again."""
        with self._lock:
            names, self._unsaved = self._unsaved, set()
            rows = {name: _row(self._tickets[name]) if name in self._tickets else None for name in names}
        if not rows:
            return True
        try:
            self._write(rows)
        except sqlite3.Error as error:
            with self._lock:
                self._unsaved |= names
            if not self._failing:
                _LOG.error("held jobs are in memory only: %s", one_line(str(error)))
            self._failing = True
            return False
        self._failing = False
        return True

    def _put(self, name: str, ticket: Ticket | None) -> None:
        with self._lock:
            self._unsaved.add(name)
            if ticket is None:
                self._tickets.pop(name, None)
            else:
                self._tickets[name] = ticket

    def _change(self, name: str, **changes: Any) -> None:
        with self._lock:
            if name in self._tickets:
                self._unsaved.add(name)
                self._tickets[name] = replace(self._tickets[name], **changes)

    def _rows(self) -> Iterator[_Row]:
        yield from self._db.execute(
            "SELECT name, made_s, request, response, job_id FROM tickets ORDER BY made_s"
        )

    def _write(self, rows: Mapping[str, _Row | None]) -> None:
        with self._file_lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            for name, row in rows.items():
                self._db.execute("DELETE FROM tickets WHERE name = ?", (name,))
                if row is not None:
                    self._db.execute("INSERT INTO tickets VALUES (?, ?, ?, ?, ?)", row)

    def record_subject(self, subject: str, *, comment: str, requested_s: float) -> None:
        """Store the last comment about a subject (`comment.subject`), and drop the oldest subjects."""
        with self._file_lock:
            self._db.execute("REPLACE INTO subjects VALUES (?, ?, ?)", (subject, requested_s, comment))
            self._db.execute(
                "DELETE FROM subjects WHERE subject NOT IN"
                " (SELECT subject FROM subjects ORDER BY requested_s DESC LIMIT ?)",
                (_MOST_SUBJECTS,),
            )

    def comments(self, most: int) -> tuple[str, ...]:
        """The last comment of each of the newest subjects, the newest first."""
        with self._file_lock:
            rows = self._db.execute("SELECT comment FROM subjects ORDER BY requested_s DESC LIMIT ?", (most,))
            return tuple(str(row[0]) for row in rows)


def _row(ticket: Ticket) -> _Row:
    response = None if ticket.response is None else json.dumps(asdict(ticket.response))
    return ticket.name, ticket.made_s, json.dumps(asdict(ticket.request)), response, ticket.job_id


def _ticket(row: _Row) -> Ticket | None:
    """The ticket of a row; None if it is unreadable: then its job is released when it is overdue."""
    name, made_s, request, response, job_id = row
    try:
        return Ticket(
            name=name,
            made_s=made_s,
            request=SizingRequest(**json.loads(request)),
            response=_response(json.loads(response)) if response else None,
            job_id=job_id,
        )
    except (LookupError, TypeError, ValueError) as error:
        _LOG.error("ticket %s cannot be read: %s", one_line(name, 40), one_line(str(error)))
        return None


def _response(raw: dict[str, Any]) -> SizingResponse:
    return SizingResponse(**(raw | {"verdict": SizingVerdict(raw["verdict"])}))
