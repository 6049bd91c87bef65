"""The monitor gives back what a job does not need, once, though it is killed in between."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

HOSTILE = "$(touch pwned);`touch pwned`|%n{x}"


def watching(desk: Any, state: Path, *more: str) -> list[str]:
    """A monitor that may take nodes from running jobs, and looks after seconds instead of minutes."""
    quick = ("--every", "2s", "--warm-up", "1s", "--window", "20s", "--cool-down", "1s")
    found: list[str] = desk.command("slurm", "monitor", "--act", "shrink", "--state", state, *quick, *more)
    return found


def test_a_job_far_ahead_of_its_deadline_gives_a_node_to_who_waits_just_once(desk: Any) -> None:
    desk.plan(gpus=2, tokens="100M", deadline="200h")
    job = desk.submit("--partition", "a100", "--", f"--job-name={HOSTILE}")
    desk.wait("two workers train", desk.trains(world=2))
    desk.wait("a checkpoint", desk.saved)
    desk.slurm.run(
        "sbatch", "--partition=a100", "--nodes=2", "--gres=gpu:a100:4", "--output=/dev/null", "--wrap=sleep 1"
    )
    seen, state = len(desk.records()), desk.folder / "monitor.db"
    first = subprocess.Popen(watching(desk, state, "--annotate"), env=desk.environment(), cwd=desk.folder)
    try:
        desk.wait("a node is given back", lambda: "node=1," in desk.slurm.job(job)["TRES"])
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    again = subprocess.run(
        watching(desk, state, "--sweeps", "5"), env=desk.environment(), cwd=desk.folder, check=False,
        capture_output=True, text=True, timeout=1000,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    desk.wait("one worker goes on", desk.trains(world=1, since=seen))
    shown = desk.slurm.job(job)
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0")
    told = desk.rightsizer("slurm", "report", "--state", state)
    assert f"job {job}: shrink 2 -> 1 nodes, done" in told.stdout
    assert told.stdout.count("shrink 2 -> 1") == 1
    mails = (Path(desk.slurm.environment["SLURM_CONF"]).parents[1] / "log" / "mail.log").read_text()
    assert mails.count(f"== -s rightsizer: job {job} {HOSTILE}: shrink root\n") == 1
    assert shown["AdminComment"].startswith("rightsizer/1 ")  # the newest of what it said
    assert not list(desk.folder.glob("**/pwned"))
