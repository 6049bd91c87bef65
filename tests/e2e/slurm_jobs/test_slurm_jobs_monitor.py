"""The monitor gives back what a job does not need, once, though it is killed in between."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

HOSTILE = "$(touch pwned);`touch pwned`|%n{x}"


def watching(training: Any, state: Path, *more: str) -> list[str]:
    """A monitor that may take nodes from running jobs, and looks after seconds instead of minutes."""
    quick = ("--every", "2s", "--warm-up", "1s", "--window", "20s", "--cool-down", "1s")
    found: list[str] = training.command(
        "slurm", "monitor", "--act", "shrink", "--state", state, *quick, *more
    )
    return found


def test_a_job_far_ahead_of_its_deadline_gives_a_node_to_a_waiting_job_just_once(training: Any) -> None:
    training.plan(gpus=2, tokens="100M", deadline="200h")
    job = training.submit("--partition", "a100", "--", f"--job-name={HOSTILE}")
    training.wait("two workers train", training.trains(world=2))
    training.wait("a checkpoint", training.saved)
    training.slurm.run(
        "sbatch", "--partition=a100", "--nodes=2", "--gres=gpu:a100:4", "--output=/dev/null", "--wrap=sleep 1"
    )
    seen, state = len(training.records()), training.folder / "monitor.db"
    first = subprocess.Popen(
        watching(training, state, "--annotate"), env=training.environment(), cwd=training.folder
    )
    try:
        training.wait("a node is given back", lambda: "node=1," in training.slurm.job(job)["TRES"])
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    again = subprocess.run(
        watching(training, state, "--sweeps", "5"), env=training.environment(), cwd=training.folder,
        check=False, capture_output=True, text=True, timeout=1000,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    training.wait("one worker goes on", training.trains(world=1, since=seen))
    shown = training.slurm.job(job)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
    told = training.rightsizer("slurm", "report", "--state", state)
    assert f"job {job}: shrink 2 -> 1 nodes, done" in told.stdout
    assert told.stdout.count("shrink 2 -> 1") == 1
    mails = (Path(training.slurm.environment["SLURM_CONF"]).parents[1] / "log" / "mail.log").read_text()
    assert mails.count(f"== -s rightsizer: job {job} {HOSTILE}: shrink root\n") == 1
    assert shown["AdminComment"].startswith("[rightsizer/1 ")  # the newest of what it said
    assert not list(training.folder.glob("**/pwned"))
