import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.held_jobs import adopt, changes, release_held_jobs
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

HELD = "rightsizer: model=x ticket=ab"
RESPONSE = SizingResponse(
    verdict=SizingVerdict.OK,
    fields={"min_nodes": 3, "max_nodes": 3, "min_cpus": 192, "gres": "gpu:h100:8", "partition": "h100",
            "time_limit": 90, "admin_comment": "[rightsizer/1 nodes=3]"},
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, ("NumCPUs=192",)),
        ({"cpus_per_task": 16}, ("NumTasks=3", "NumCPUs=48")),
        ({"ntasks_per_node": 8}, ("NumTasks=24", "NumCPUs=24")),
        ({"ntasks_per_node": 8, "cpus_per_task": 2}, ("NumTasks=24", "NumCPUs=48")),
        ({"num_tasks": 6}, ("NumTasks=6", "NumCPUs=6")),
    ],
    ids=lambda options: " ".join(options) or "nothing",
)
def test_tasks_and_cores_agree_with_what_the_user_wrote(
    options: dict[str, int], tasks: tuple[str, ...]
) -> None:
    others = ("TimeLimit=90", "Partition=h100", "TresPerNode=gres:gpu:h100:8")
    assert changes(SizingRequest(**options), RESPONSE) == ("NumNodes=3-3", *tasks, *others)


def test_a_held_job_keeps_its_other_generic_resources() -> None:
    made = changes(SizingRequest(gres="gres:gpu:4,gres:nvme:1"), RESPONSE)
    assert f"TresPerNode=gres:{RESPONSE.fields['gres']},gres:nvme:1" in made


class OneJob(SlurmCommands):
    """Slurm's commands, with one held job in the queue."""

    def jobs(self) -> tuple[SlurmJob, ...]:
        return (SlurmJob(job_id=7, user_id=5, states=("PENDING",), priority=0, comment=HELD),)


def carried(tmp_path: Path, complaint: str) -> tuple[TicketStore, Slurm]:
    """A ticket with its size, and a scontrol that records its arguments and fails to update."""
    scontrol = tmp_path / "scontrol"
    lines = (f'echo "$1" >> {tmp_path}/log', f'[ "$1" = release ] || {{ echo "{complaint}" >&2; exit 1; }}')
    scontrol.write_text("\n".join(("#!/bin/sh", *lines, "")))
    scontrol.chmod(0o755)
    state = TicketStore(tmp_path / "state.db")
    state.add(Ticket(name="ab", made_s=0.0, request=SizingRequest(uid=5)))
    state.set_response("ab", RESPONSE)
    return state, Slurm(folder=tmp_path)


def test_a_held_job_waits_while_the_sizer_is_down(tmp_path: Path) -> None:
    gone = "slurm_update error: Unable to contact slurm controller (connect failure)"
    state, slurm = carried(tmp_path, gone)
    with pytest.raises(SlurmError, match="Unable to contact"):
        list(release_held_jobs(state, slurm, OneJob(slurm), now_s=1.0))
    assert len(state.tickets()) == 1
    assert (tmp_path / "log").read_text() == "update\n"
    state.close()


def test_what_slurm_refuses_is_released_unchanged(tmp_path: Path) -> None:
    state, slurm = carried(tmp_path, "slurm_update error: Requested node configuration is not available")
    (done,) = release_held_jobs(state, slurm, OneJob(slurm), now_s=1.0)
    assert "released unchanged, Slurm refused the size" in done.text
    assert state.tickets() == ()
    assert (tmp_path / "log").read_text() == "update\nupdate\nrelease\n"
    state.close()


@pytest.mark.parametrize(
    ("job", "known", "message", "commands"),
    [
        ({"priority": 0, "comment": HELD}, False, "sized: ", ["update", "release"]),
        ({"priority": 0, "comment": HELD}, True, "sized: ", ["update", "release"]),
        ({"priority": 0, "comment": "of another plugin"}, True, "sized: ", ["update", "release"]),
        ({"priority": 9, "comment": "rightsizer: model=x RIGHTSIZER_TP=1"}, True, "no longer held", []),
        ({"states": ("COMPLETED",)}, True, "no longer held", []),
        ({"priority": 9, "comment": HELD}, False, "no longer held", []),
    ],
    ids=["held", "not updated", "comment lost", "released", "over", "released by its owner"],
)
def test_whenever_a_daemon_ended_the_next_does_the_rest(
    tmp_path: Path, job, known, message, commands
) -> None:
    class Queue(SlurmCommands):
        """Slurm's commands, with this job in the queue."""

        def jobs(self) -> tuple[SlurmJob, ...]:
            return (SlurmJob(**({"job_id": 7, "user_id": 5, "states": ("PENDING",)} | job)),)

    state, slurm = carried(tmp_path, "")
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/log\n')
    (tmp_path / "log").touch()
    if known:
        state.set_job("ab", 7)
    (done,) = release_held_jobs(state, slurm, Queue(slurm), now_s=1.0)
    assert message in done.text
    assert ((tmp_path / "log").read_text().split(), state.tickets()) == (commands, ())
    state.close()


def logged(tmp_path: Path, job: SlurmJob, request: SizingRequest) -> tuple[TicketStore, Slurm, SlurmCommands]:
    class Queue(SlurmCommands):
        """Slurm's commands, with this job in the queue."""

        def jobs(self) -> tuple[SlurmJob, ...]:
            return (job,)

    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\nfor word; do echo "$word"; done >> {tmp_path}/log\n')
    scontrol.chmod(0o755)
    state, slurm = TicketStore(tmp_path / "state.db"), Slurm(folder=tmp_path)
    state.add(Ticket(name="ab", made_s=0.0, request=request))
    return state, slurm, Queue(slurm)


def test_a_held_job_gets_the_variables_and_keeps_what_others_wrote(tmp_path: Path) -> None:
    job = SlurmJob(
        job_id=7, user_id=5, states=("PENDING",), priority=0, comment=HELD, admin_comment="JS1:x [old]"
    )
    state, slurm, queue = logged(tmp_path, job, SizingRequest(uid=5, gres="gres:gpu:4"))
    assert list(release_held_jobs(state, slurm, queue, now_s=1.0)) == []
    assert state.tickets()[0].job_id == 7  # from now on found by its number
    state.set_response("ab", replace(RESPONSE, variables={"RIGHTSIZER_TP": "8"}))
    list(release_held_jobs(state, slurm, queue, now_s=1.0))
    told = (tmp_path / "log").read_text().splitlines()
    assert "Comment=rightsizer: model=x RIGHTSIZER_TP=8" in told
    assert "AdminComment=JS1:x [old] [rightsizer/1 nodes=3]" in told
    assert told.index("TresPerNode=") < told.index("TresPerNode=gres:gpu:h100:8")
    state.close()


@pytest.mark.parametrize(("owner", "submitter", "found"), [(5, 5, 1), (6, 5, 0), (6, 0, 1)])
def test_a_ticket_that_another_user_copied_sizes_nothing(
    tmp_path: Path, owner: int, submitter: int, found: int
) -> None:
    job = SlurmJob(job_id=7, user_id=owner, states=("PENDING",), priority=0, comment=HELD)
    state, slurm, queue = logged(tmp_path, job, SizingRequest(uid=submitter))
    state.set_response("ab", RESPONSE)
    assert len(list(release_held_jobs(state, slurm, queue, now_s=1.0))) == found
    state.close()


def test_a_job_that_the_plugin_held_by_itself_gets_one_ticket(tmp_path: Path) -> None:
    job = SlurmJob(
        job_id=7, user_id=5, states=("PENDING",), priority=0, comment="rightsizer: model=x ticket=0",
        admin_comment="a=7 [rightsizer/1 held mode=enforce uid=9 max_nodes=2 gres=gpu:3 features=a%7Cb%5D]",
    )  # fmt: skip
    state = TicketStore(tmp_path / "state.db")
    state.add(Ticket(name="ab", made_s=0.0, request=SizingRequest(uid=5)))
    others = (
        replace(job, job_id=8, priority=1),
        replace(job, job_id=9, comment=HELD),
        replace(job, job_id=10, admin_comment=""),
        replace(job, job_id=11, reason="JobHeldAdmin"),
        replace(job, job_id=12, admin_comment="[rightsizer/1 held max_nodes=many]"),
    )
    for _ in range(2):
        adopt(state, (job, *others))
    _, ticket = state.tickets()
    stated = SizingRequest(mode="enforce", max_nodes=2, gres="gpu:3", features="a|b]")
    assert ticket.request == replace(stated, uid=5, comment="rightsizer: model=x")
    assert ticket.job_id == 7
    state.close()


@pytest.mark.parametrize(
    ("verdict", "batch", "verbs"),
    [
        (SizingVerdict.REFUSE, True, ["update", "7"]),
        (SizingVerdict.REFUSE, False, ["update", "notify", "7"]),
        (SizingVerdict.KEEP, True, ["update", "release"]),
        (SizingVerdict.KEEP, False, ["update", "notify", "release"]),
    ],
    ids=["refused batch", "refused salloc", "unsized batch", "unsized salloc"],
)
def test_a_waiting_terminal_gets_the_line_and_a_refusal_ends_the_job(
    tmp_path: Path, verdict, batch, verbs
) -> None:
    job = SlurmJob(job_id=7, user_id=5, states=("PENDING",), priority=0, comment=HELD, batch=batch)
    state, slurm, queue = logged(tmp_path, job, SizingRequest(uid=5))
    for name in ("scontrol", "scancel"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/verbs\n')
        (tmp_path / name).chmod(0o755)
    state.set_response("ab", SizingResponse(verdict=verdict, say="too late"))
    (done,) = release_held_jobs(state, slurm, queue, now_s=1.0)
    assert (tmp_path / "verbs").read_text().split() == verbs
    assert ("ended" in done.text) == (verbs[-1] == "7")
    state.close()


def test_a_deadline_that_only_the_job_has_is_sized_for(tmp_path: Path) -> None:
    job = SlurmJob(
        job_id=7, user_id=5, states=("PENDING",), priority=0, comment=HELD, deadline_s=1_800_000_000.0
    )
    state, slurm, queue = logged(tmp_path, job, SizingRequest(uid=5))
    before = state.tickets()[0].request
    state.set_response("ab", RESPONSE)
    assert list(release_held_jobs(state, slurm, queue, now_s=1.0)) == []  # that size knew no deadline
    (ticket,) = state.tickets()
    assert dt.datetime.fromisoformat(ticket.request.deadline).timestamp() == 1_800_000_000.0
    state.set_response("ab", RESPONSE, request=before)  # it was still being sized
    assert state.tickets()[0].response is None
    state.set_response("ab", RESPONSE, request=ticket.request)
    (done,) = release_held_jobs(state, slurm, queue, now_s=1.0)
    assert "sized: " in done.text
    state.close()
