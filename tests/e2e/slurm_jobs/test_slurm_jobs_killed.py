"""A real torchrun job whose batch script is killed, as by the kernel for memory: no half of it lives on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_without_its_script_ends_with_a_reason_and_goes_on_when_requeued(desk: Any, check: Any) -> None:
    desk.plan(gpus=2)
    job = desk.submit("--partition", "h100")
    desk.wait("two workers train", desk.trains(world=2))
    desk.wait("a checkpoint", desk.saved)
    assert len(processes(desk, job)) > 4  # script, store, srun and a worker on each node
    os.kill(script(desk, job), signal.SIGKILL)
    desk.wait("the job ends", lambda: desk.slurm.job(job)["JobState"] == "FAILED")
    assert desk.slurm.job(job)["ExitCode"] == "0:9"
    desk.wait("nothing of it is left", lambda: not processes(desk, job))

    seen = len(desk.records())
    refused = desk.rightsizer("slurm", "resize", job, "--nodes", "1")
    assert refused.returncode == 2
    assert "no job that waits or runs" in refused.stderr
    desk.slurm.run("scontrol", "requeue", job)
    desk.wait("it goes on", desk.trains(world=2, since=seen))
    assert desk.slurm.job(job)["Restarts"] == "1"
    assert desk.said().count("start 1, 2 nodes") == 1
    assert sum(record["event"] == "start" for record in desk.records()[seen:]) == 1
    assert check.continuous(desk.records())
    assert check.losses_fall(desk.records())


def processes(desk: Any, job: str) -> list[int]:
    """Every process of the job, on all nodes of this machine, the eldest first.

    Slurms that run beside this one have jobs of the same numbers.
    """
    mine = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_CONF={desk.slurm.environment['SLURM_CONF']}".encode()}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            born = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
        if mine <= set(variables):
            found.append((born, int(folder.name)))
    return [number for _, number in sorted(found)]


def script(desk: Any, job: str) -> int:
    """The batch script's process; what it starts is younger."""
    named = (
        pid for pid in processes(desk, job) if b"slurm_script" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return next(named)
