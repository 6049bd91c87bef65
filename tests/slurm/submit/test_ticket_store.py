import sqlite3
from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

TICKET = Ticket(name="ab12", made_s=10.0, request=SizingRequest(comment="rightsizer: x", max_nodes=2))
RESPONSE = SizingResponse(
    verdict=SizingVerdict.OK, say="two", fields={"min_nodes": 2}, variables={"RIGHTSIZER_TP": "1"}
)


def test_a_ticket_survives_a_restart_with_its_size(tmp_path: Path) -> None:
    state = TicketStore(tmp_path / "state.db")
    state.add(TICKET)
    state.set_response("ab12", RESPONSE)
    state.set_job("ab12", 7)
    state.close()
    again = TicketStore(tmp_path / "state.db")
    stored = again.tickets()[0]
    assert (stored.request, stored.response, stored.job_id) == (TICKET.request, RESPONSE, 7)
    again.remove("ab12")
    assert again.tickets() == ()
    again.close()


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as later:
        later.execute("PRAGMA user_version = 99")
    later.close()
    with pytest.raises(InputError, match="written by a later rightsizer"):
        TicketStore(tmp_path / "state.db")


def test_a_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("not a database, but long enough to be looked at" * 20)
    with pytest.raises(InputError, match="cannot be used"):
        TicketStore(tmp_path / "state.db")


def test_the_last_request_of_each_subject_is_stored_once(tmp_path: Path) -> None:
    state = TicketStore(tmp_path / "state.db")
    for second, (subject, comment) in enumerate([("a", "a 1"), ("b", "b 1"), ("a", "a 2")]):
        state.record_subject(subject, comment=comment, requested_s=float(second))
    state.close()
    again = TicketStore(tmp_path / "state.db")
    assert (again.comments(9), again.comments(1)) == (("a 2", "b 1"), ("a 2",))
    for number in range(100):
        again.record_subject(f"{number}", comment=f"{number}", requested_s=10.0 + number)
    assert (len(again.comments(999)), again.comments(1)) == (64, ("99",))
    again.close()
