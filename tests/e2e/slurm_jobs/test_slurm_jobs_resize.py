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


def test_a_job_shrinks_live_and_grows_by_a_requeue_whatever_dies_meanwhile(training: Any, check: Any) -> None:
    training.plan(gpus=4)
    job = training.submit("--partition", "h100")
    training.wait("four workers train", training.trains(world=4))
    training.wait("a checkpoint", training.saved)
    seen = len(training.records())
    shrunk = training.rightsizer("slurm", "resize", job, "--nodes", "2")
    assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
    training.wait("two workers go on", training.trains(world=2, since=seen))
    assert training.slurm.job(job)["Restarts"] == "0"

    seen = len(training.records())
    grown_by_a_command_that_is_killed(training, job)
    training.slurm.control("kill", "slurmctld")
    time.sleep(2)
    training.slurm.control("start", "slurmctld")
    training.wait("four workers go on, nobody helps", training.trains(world=4, since=seen))
    again = training.rightsizer("slurm", "resize", job, "--nodes", "4")
    assert again.returncode == 0, again.stdout + again.stderr
    assert "continues requeue to 4 nodes" in again.stdout
    assert training.slurm.job(job)["Restarts"] == "1"
    assert training.output().count("rightsizer: saved; requeued at 4 nodes") == 1
    assert check.continuous(training.records())
    assert check.losses_fall(training.records())


def grown_by_a_command_that_is_killed(training: Any, job: str) -> None:
    """Request four nodes, and kill the command once the job was told to stop."""
    journal = training.folder / ".local/state/rightsizer/resize.db"
    command = subprocess.Popen(
        training.command("slurm", "resize", job, "--nodes", "4"),
        env=training.environment(),
        cwd=training.folder,
    )
    training.wait("the job is asked to stop", lambda: stage(journal) == "asked")
    command.send_signal(signal.SIGKILL)
    command.wait()


def stage(journal: Path) -> str:
    """The stage of the newest change."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
        return str(db.execute("SELECT stage FROM intents ORDER BY number DESC").fetchone()[0])
