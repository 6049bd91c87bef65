"""A real torchrun job loses nodes while it runs, gains them by a requeue, and its loss goes on."""

import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_shrinks_live_and_grows_by_a_requeue_whatever_dies_meanwhile(desk: Any, check: Any) -> None:
    desk.plan(gpus=4)
    job = desk.submit("--partition", "h100")
    desk.wait("four workers train", desk.trains(world=4))
    desk.wait("a checkpoint", desk.saved)
    seen = len(desk.records())
    shrunk = desk.rightsizer("slurm", "resize", job, "--nodes", "2")
    assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
    desk.wait("two workers go on", desk.trains(world=2, since=seen))
    assert desk.slurm.job(job)["Restarts"] == "0"

    seen = len(desk.records())
    grown_by_a_command_that_is_killed(desk, job)
    desk.slurm.control("kill", "slurmctld")
    time.sleep(2)
    desk.slurm.control("start", "slurmctld")
    again = desk.rightsizer("slurm", "resize", job, "--nodes", "4")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "goes on with requeue to 4 nodes" in again.stdout
    desk.wait("four workers go on", desk.trains(world=4, since=seen))
    assert desk.slurm.job(job)["Restarts"] == "1"
    assert desk.said().count("rightsizer: saved; requeuehold") == 1
    assert check.continuous(desk.records())
    assert check.losses_fall(desk.records())


def grown_by_a_command_that_is_killed(desk: Any, job: str) -> None:
    """Ask for four nodes, and kill who asks once the job was told to stop."""
    journal = desk.folder / ".local/state/rightsizer/resize.db"
    command = subprocess.Popen(
        desk.command("slurm", "resize", job, "--nodes", "4"), env=desk.environment(), cwd=desk.folder
    )
    desk.wait("the job is asked to stop", lambda: stage(journal) == "asked")
    command.send_signal(signal.SIGKILL)
    command.wait()


def stage(journal: Path) -> str:
    """How far the newest change has come."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
        return str(db.execute("SELECT stage FROM intents ORDER BY number DESC").fetchone()[0])
