from pathlib import Path

import pytest

from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.held_jobs import changes, marked, release_held_jobs
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, Verdict
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

RESPONSE = SizingResponse(
    verdict=Verdict.OK,
    fields={"min_nodes": 3, "max_nodes": 3, "min_cpus": 192, "gres": "gpu:h100:8", "partition": "h100",
            "time_limit": 90, "admin_comment": "rightsizer/1 nodes=3"},
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


class OneJob(SlurmCommands):
    """Slurm's commands, with one held job in the queue."""

    def jobs(self) -> tuple[SlurmJob, ...]:
        return (SlurmJob(job_id=7, states=("PENDING",), priority=0, admin_comment=marked("ab")),)


def carried(tmp_path: Path, complaint: str) -> tuple[TicketStore, Slurm]:
    """A ticket with its answer, and a scontrol that writes down what it is told, and fails to update."""
    scontrol = tmp_path / "scontrol"
    lines = (f'echo "$1" >> {tmp_path}/log', f'[ "$1" = release ] || {{ echo "{complaint}" >&2; exit 1; }}')
    scontrol.write_text("\n".join(("#!/bin/sh", *lines, "")))
    scontrol.chmod(0o755)
    state = TicketStore(tmp_path / "state.db")
    state.add(Ticket(name="ab", made_s=0.0, request=SizingRequest()))
    state.set_response("ab", RESPONSE)
    return state, Slurm(folder=tmp_path)


def test_while_nobody_answers_a_held_job_waits(tmp_path: Path) -> None:
    gone = "slurm_update error: Unable to contact slurm controller (connect failure)"
    state, slurm = carried(tmp_path, gone)
    with pytest.raises(SlurmError, match="Unable to contact"):
        release_held_jobs(state, slurm, OneJob(slurm), now_s=1.0)
    assert len(state.tickets()) == 1
    assert (tmp_path / "log").read_text() == "update\n"
    state.close()


def test_what_slurm_refuses_is_released_unchanged(tmp_path: Path) -> None:
    state, slurm = carried(tmp_path, "slurm_update error: Requested node configuration is not available")
    (done,) = release_held_jobs(state, slurm, OneJob(slurm), now_s=1.0)
    assert "released unchanged, Slurm refused the size" in done.text
    assert state.tickets() == ()
    assert (tmp_path / "log").read_text() == "update\nrelease\n"
    state.close()


@pytest.mark.parametrize(
    ("job", "known", "message", "commands"),
    [
        ({"priority": 0, "admin_comment": marked("ab")}, False, "sized: ", ["update", "release"]),
        ({"priority": 0, "admin_comment": marked("ab")}, True, "sized: ", ["update", "release"]),
        ({"priority": 0, "admin_comment": "rightsizer/1 nodes=3"}, True, "sized: ", ["release"]),
        ({"priority": 9, "admin_comment": "rightsizer/1 nodes=3"}, True, "sized: ", []),
        ({"states": ("COMPLETED",), "admin_comment": "rightsizer/1 nodes=3"}, True, "sized: ", []),
        ({"priority": 9, "admin_comment": marked("ab")}, False, "and no longer held", []),
    ],
    ids=["held", "not updated", "not released", "released", "over", "released by its owner"],
)
def test_whenever_a_daemon_ended_the_next_does_the_rest(
    tmp_path: Path, job, known, message, commands
) -> None:
    class Queue(SlurmCommands):
        """Slurm's commands, with this job in the queue."""

        def jobs(self) -> tuple[SlurmJob, ...]:
            return (SlurmJob(**({"job_id": 7, "states": ("PENDING",)} | job)),)

    state, slurm = carried(tmp_path, "")
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/log\n')
    (tmp_path / "log").touch()
    if known:
        state.set_job("ab", 7)
    (done,) = release_held_jobs(state, slurm, Queue(slurm), now_s=1.0)
    assert message in done.text
    assert ((tmp_path / "log").read_text().split(), state.tickets()) == (commands, ())
    state.close()
