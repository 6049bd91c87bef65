"""A real torchrun job whose batch script is killed, as by the kernel for memory: no half of it lives on."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]


def test_a_job_without_its_script_ends_with_a_reason_and_resumes_when_requeued(
    training: Any, check: Any
) -> None:
    training.plan(gpus=2)
    job = training.submit("--partition", "h100")
    training.wait("two workers train", training.trains(world=2))
    training.wait("a checkpoint", training.saved)
    assert len(training.processes(job)) > 4  # script, store, srun and a worker on each node
    os.kill(script(training, job), signal.SIGKILL)
    training.wait("the job ends", lambda: training.slurm.job(job)["JobState"] == "FAILED")
    assert training.slurm.job(job)["ExitCode"] == "0:9"
    training.wait("nothing of it is left", lambda: not training.processes(job))

    seen = len(training.records())
    refused = training.rightsizer("slurm", "resize", job, "--nodes", "1")
    assert refused.returncode == 2
    assert "is not a pending or running job" in refused.stderr
    training.slurm.run("scontrol", "requeue", job)
    training.wait("it goes on", training.trains(world=2, since=seen))
    assert training.slurm.job(job)["Restarts"] == "1"
    assert training.output().count("start 1, 2 nodes") == 1
    assert sum(record["event"] == "start" for record in training.records()[seen:]) == 1
    assert check.continuous(training.records())
    assert check.losses_fall(training.records())


def script(training: Any, job: str) -> int:
    """The process of the batch script; its children are younger."""
    named = (
        pid for pid in training.processes(job) if b"slurm_script" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return next(named)
