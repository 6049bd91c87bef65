"""Held jobs on a queue of values and a scontrol that records its arguments; the clock is the test's own."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.releases import Releases
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

SHIPPED = SiteConfig()
LIMIT_S = SHIPPED.hold_limit_s
KEEP = SizingResponse(verdict=SizingVerdict.KEEP, say="as written")


class Queue(SlurmCommands):
    """Slurm's commands, with these jobs in the queue."""

    queue: tuple[SlurmJob, ...] = ()
    looks = 0

    def jobs(self) -> tuple[SlurmJob, ...]:
        self.looks += 1
        return self.queue


@dataclass
class Lab:
    """Releases, their tickets, and scontrol's recorded arguments."""

    folder: Path
    now_s: float = 1000.0
    set_by_s: float = 0.0
    refuses: str = "none"
    site: SiteConfig = SHIPPED
    state: TicketStore = field(init=False)
    queue: Queue = field(init=False)
    releases: Releases = field(init=False)

    def __post_init__(self) -> None:
        scontrol = self.folder / "scontrol"
        lines = (
            f'echo "$*" >> {self.folder}/log',
            f'case "$*" in *{self.refuses}*) echo "Access/permission denied" >&2; exit 1;; esac',
        )
        scontrol.write_text("\n".join(("#!/bin/sh", *lines, "")))
        scontrol.chmod(0o755)
        (self.folder / "scancel").symlink_to(scontrol)
        (self.folder / "log").touch()
        self.state = TicketStore(self.folder / "state.db")
        self.queue = Queue(Slurm(folder=self.folder))
        self.begin()

    def begin(self) -> None:
        """A daemon starts."""
        self.releases = Releases(
            self.state,
            Slurm(folder=self.folder),
            self.queue,
            self.site,
            clock=lambda: self.now_s + self.set_by_s,
            steady=lambda: self.now_s,
        )

    def hold(self, number: int, *, ticket: bool = True, own: bool = False, **fields: object) -> None:
        """A held job, with its ticket or without."""
        name = f"{number}a{int(own)}"
        job = {"priority": 0, "reason": "JobHeldUser", "comment": f"rightsizer: model=x ticket={name}"}
        job |= {"submitted_s": self.now_s} | fields  # type: ignore[assignment]
        held = SlurmJob(job_id=number, user_id=5, states=("PENDING",), **job)  # type: ignore[arg-type]
        self.queue.queue = (*self.queue.queue, held)
        if ticket:
            request = SizingRequest(uid=5, priority=0 if own else None, mode=self.site.mode_of("p"))
            self.state.add(Ticket(name=name, made_s=self.now_s, request=request))

    def respond(self, number: int) -> None:
        self.state.set_response(f"{number}a0", KEEP)

    def released(self) -> list[int]:
        """The jobs that were released, in this order."""
        return [int(line.split()[1]) for line in self.told().splitlines() if line.startswith("release")]

    def told(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., Lab]:
    return lambda **given: Lab(tmp_path, **given)


def test_a_job_without_a_size_is_released_after_the_shipped_limit(lab: Callable[..., Lab]) -> None:
    at = lab()
    at.hold(7)
    for passed_s in (0.0, LIMIT_S - 1.0):
        at.now_s = 1000.0 + passed_s
        at.releases.round()
        assert at.released() == []
    at.now_s = 1000.0 + LIMIT_S
    at.releases.round()
    assert (at.released(), at.state.tickets()) == ([7], ())
    assert "not sized: no size after 600 s" in at.told()


@pytest.mark.parametrize("hours", [5, -5], ids=["forwards", "back"])
def test_a_clock_that_is_set_makes_no_job_overdue_and_no_job_wait(
    lab: Callable[..., Lab], hours: int
) -> None:
    at = lab()
    at.hold(7)
    at.releases.round()
    at.set_by_s = hours * 3600.0
    at.now_s += LIMIT_S - 1.0
    at.releases.round()
    assert at.released() == []
    at.hold(8, ticket=False, submitted_s=at.now_s + at.set_by_s)  # by Slurm's clock
    for _ in range(2):
        at.now_s += LIMIT_S
        at.releases.round()
    assert set(at.released()) == {7, 8}


def test_a_job_that_slurm_does_not_release_delays_no_other_and_is_tried_again(
    lab: Callable[..., Lab],
) -> None:
    at = lab(refuses='"release 7"')
    for number in (7, 8):
        at.hold(number)
        at.respond(number)
    tried = []
    for passed_s in (0.0, 0.5, 31.0):  # the second round is too soon
        at.now_s += passed_s
        at.releases.round()
        tried.append(at.released())
    assert tried == [[7, 7, 8], [7, 7, 8], [7, 7, 8, 7, 7]]


def test_a_fault_in_one_ticket_releases_its_job_and_the_others(lab: Callable[..., Lab]) -> None:
    at = lab()
    for number in (7, 8):
        at.hold(number)
        at.respond(number)
    broken = SizingResponse(verdict=SizingVerdict.OK, fields={"max_nodes": "many"})
    at.state.set_response("7a0", broken)
    at.releases.round()
    assert (at.released(), at.state.tickets()) == ([7, 8], ())


@pytest.mark.parametrize(
    ("fields", "released"),
    [
        ({}, [7]),
        ({"own": True}, []),
        ({"reason": "JobHeldAdmin"}, []),
        ({"priority": 9, "reason": "Priority"}, []),
        ({"comment": "rightsizer: model=x"}, []),
        ({"comment": "of others ticket=7a0"}, []),
    ],
    ids=["lost ticket", "held by its user too", "held by an admin", "released", "never held", "not ours"],
)
def test_a_held_job_whose_ticket_is_lost_is_released_after_the_limit(
    lab: Callable[..., Lab], fields: dict[str, object], released: list[int]
) -> None:
    at = lab()
    at.hold(7, ticket=False, **fields)  # type: ignore[arg-type]
    at.releases.round()
    assert at.released() == []
    at.now_s += LIMIT_S
    at.releases.round()
    assert at.released() == released


@pytest.mark.parametrize(
    ("note", "gpus", "ends"),
    [("silent=1", 0, True), ("silent=1", 8, False), ("gres=gpu:8", 0, False)],
    ids=["no shell, no GPUs", "no shell", "a shell"],
)
@pytest.mark.parametrize("response", [None, KEEP, "broken"], ids=["end", "not sized", "not accepted"])
def test_a_job_without_gpus_and_without_a_note_of_its_missing_size_ends(
    lab: Callable[..., Lab], note: str, gpus: int, ends: bool, response: SizingResponse | str | None
) -> None:
    at = lab()
    at.hold(7, gpus=gpus, admin_comment=f"[rightsizer/1 held {note}]")
    if response is None:
        at.releases.end()
    else:
        broken = SizingResponse(verdict=SizingVerdict.OK, fields={"max_nodes": "many"})
        at.state.set_response("7a0", broken if isinstance(response, str) else response)
        at.releases.round()
    assert (at.released(), "7" in at.told().splitlines()) == (([], True) if ends else ([7], False))
    assert ("refused: not sized, and it requests no GPUs: " in at.told()) == ends


def test_at_the_end_every_job_is_released(lab: Callable[..., Lab]) -> None:
    at = lab()
    at.hold(7)
    at.hold(8, ticket=False)
    at.hold(9, own=True)
    at.now_s += 10.0
    at.releases.end()
    assert at.released() == [7, 8]
    assert at.told().count("not sized: rightsizer was stopped") == 3


@pytest.mark.parametrize(
    "site",
    [SiteConfig(on_fault="refuse"), SiteConfig(partitions={"p": "enforce"}), SiteConfig(on_fault="hold")],
    ids=["refuse", "enforce", "hold"],
)
def test_where_nothing_may_run_unsized_jobs_wait_for_a_daemon_and_end_after_the_limit(
    lab: Callable[..., Lab], site: SiteConfig
) -> None:
    at = lab(site=site)
    at.hold(7, partition="p")
    at.hold(8, partition="p", ticket=False, admin_comment="[rightsizer/1 held gres=gpu:8]")  # a lost file
    at.releases.end()
    assert (at.told(), len(at.state.tickets())) == ("", 2)
    at.now_s += 2 * LIMIT_S  # no daemon ran
    at.begin()
    at.releases.round()
    at.now_s += LIMIT_S - 1.0
    at.releases.round()
    assert at.told() == ""
    at.now_s += 1.0
    at.releases.round()
    ended = [line for line in at.told().splitlines() if line.isdigit()]
    assert (ended, at.released(), at.state.tickets()) == (["7", "8"], [], ())
    refusal = "Comment=rightsizer: model=x refused: no size after 600 s AdminComment=[rightsizer/1 refused: "
    assert at.told().count(refusal) == at.told().count("Requeue=0") == 2


@pytest.mark.parametrize("site", [SHIPPED, SiteConfig(partitions={"p": "enforce"})], ids=["size", "enforce"])
@pytest.mark.parametrize("verdict", [SizingVerdict.OK, SizingVerdict.KEEP, SizingVerdict.REFUSE])
def test_a_size_that_slurm_refuses_opens_no_enforced_partition(
    lab: Callable[..., Lab], site: SiteConfig, verdict: SizingVerdict
) -> None:
    at = lab(site=site, refuses="NumNodes")
    at.hold(7, partition="p")
    sized = SizingResponse(verdict=verdict, say="because", fields={"max_nodes": 2, "gres": "gpu:h100:8"})
    at.state.set_response("7a0", sized)
    at.releases.round()
    refused = verdict is SizingVerdict.REFUSE or site is not SHIPPED
    assert (at.released(), "7" in at.told().splitlines()) == (([], True) if refused else ([7], False))
    assert at.state.tickets() == ()


def test_the_job_of_a_failed_submit_is_looked_up_less_and_less_often(lab: Callable[..., Lab]) -> None:
    at = lab()
    at.hold(7)
    at.queue.queue = ()
    for _ in range(2 * 3600):  # twice a second for an hour
        at.now_s += 0.5
        at.releases.round()
    assert at.queue.looks < 2 * 60 + 15  # two a minute: one is the look for jobs without tickets
    at.hold(8, ticket=False)
    at.state.add(Ticket(name="8a0", made_s=at.now_s, request=SizingRequest(uid=5)))
    at.now_s += 0.5
    at.releases.round()
    assert [ticket.job_id for ticket in at.state.tickets() if ticket.name == "8a0"] == [8]


def test_a_full_disk_ends_no_round(lab: Callable[..., Lab]) -> None:
    at = lab()
    pages = at.state._db.execute("PRAGMA page_count").fetchone()[0]
    at.state._db.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(7, 60):
        at.hold(number, comment=f"rightsizer: model={'x' * 900} ticket={number}a0")
        at.respond(number)
    assert not at.state.save()
    at.releases.round()
    assert at.released() == list(range(7, 60))
    at.state._db.execute("PRAGMA max_page_count = 100000")
    assert at.state.save()


def test_a_queue_that_cannot_be_read_is_a_failure_in_the_metrics(lab: Callable[..., Lab]) -> None:
    class Broken(Queue):
        def jobs(self) -> tuple[SlurmJob, ...]:
            raise KeyError("job_id")

    at = lab()
    at.hold(7)
    slurm = Slurm(folder=at.folder)
    releases = Releases(
        at.state, slurm, Broken(slurm), at.site, clock=lambda: at.now_s, steady=lambda: at.now_s
    )
    releases.round()
    at.releases.round()
    broken, whole = (
        {family.name: family.samples[0].value for family in each.collect()}
        for each in (releases, at.releases)
    )
    names = ("held_jobs", "release_timestamp_seconds", "release_failures")
    assert [broken[f"rightsizer_slurm_{name}"] for name in names] == [1.0, 0.0, 1.0]
    assert [whole[f"rightsizer_slurm_{name}"] for name in names] == [1.0, 1000.0, 0.0]


@pytest.mark.parametrize("row", ["{", '{"nodes": 1}', "[]", "null"])
def test_a_ticket_that_cannot_be_read_stops_no_start(tmp_path: Path, row: str) -> None:
    TicketStore(tmp_path / "state.db").close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("INSERT INTO tickets VALUES ('a', 1.0, ?, NULL, NULL)", (row,))
    db.close()
    state = TicketStore(tmp_path / "state.db")
    assert state.tickets() == ()
    state.close()
