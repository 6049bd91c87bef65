"""The daemon's tables in the state file: tickets of held jobs, and the models that users train here."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rightsizer.values import immutable
from rightsizer_slurm import state_file
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, Verdict

__all__ = ["Ticket", "TicketStore"]

_MOST_SUBJECTS = 64


@immutable
class Ticket:
    """A held job: its request, its response once known, its job number once it is being sized.

    `made_s` is seconds since the epoch.
    """

    name: str
    made_s: float
    request: SizingRequest
    response: SizingResponse | None = None
    job_id: int | None = None


class TicketStore:
    """Tickets and subjects. A change is on disk when the call returns."""

    def __init__(self, path: Path | str) -> None:
        self._db = state_file.connect(path)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, ticket: Ticket) -> None:
        """Add the ticket of a job that is about to be held."""
        self._db.execute(
            "INSERT INTO tickets (name, made_s, question) VALUES (?, ?, ?)",
            (ticket.name, ticket.made_s, json.dumps(asdict(ticket.request))),
        )

    def set_response(self, name: str, response: SizingResponse) -> None:
        """Store a ticket's response."""
        self._db.execute("UPDATE tickets SET answer = ? WHERE name = ?", (json.dumps(asdict(response)), name))

    def set_job(self, name: str, job_id: int) -> None:
        """Store the number of a ticket's job, which is about to be sized."""
        self._db.execute("UPDATE tickets SET job_id = ? WHERE name = ?", (job_id, name))

    def remove(self, name: str) -> None:
        """Remove a ticket."""
        self._db.execute("DELETE FROM tickets WHERE name = ?", (name,))

    def record_subject(self, subject: str, *, comment: str, requested_s: float) -> None:
        """Store the last comment about a subject (`comment.subject`), and drop the oldest subjects."""
        self._db.execute("REPLACE INTO subjects VALUES (?, ?, ?)", (subject, requested_s, comment))
        self._db.execute(
            "DELETE FROM subjects WHERE subject NOT IN"
            " (SELECT subject FROM subjects ORDER BY asked_s DESC LIMIT ?)",
            (_MOST_SUBJECTS,),
        )

    def comments(self, most: int) -> tuple[str, ...]:
        """The last comment of each of the newest subjects, the newest first."""
        rows = self._db.execute("SELECT comment FROM subjects ORDER BY asked_s DESC LIMIT ?", (most,))
        return tuple(str(row[0]) for row in rows)

    def tickets(self) -> tuple[Ticket, ...]:
        """Every ticket, the oldest first."""
        rows = self._db.execute("SELECT name, made_s, question, answer, job_id FROM tickets ORDER BY made_s")
        return tuple(_ticket(row) for row in rows)


def _ticket(row: tuple[str, float, str, str | None, int | None]) -> Ticket:
    name, made_s, request, response, job_id = row
    return Ticket(
        name=name,
        made_s=made_s,
        request=SizingRequest(**json.loads(request)),
        response=_response(json.loads(response)) if response else None,
        job_id=job_id,
    )


def _response(raw: dict[str, Any]) -> SizingResponse:
    return SizingResponse(**(raw | {"verdict": Verdict(raw["verdict"])}))
