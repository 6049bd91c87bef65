"""A real torchrun job whose nodes a more urgent one takes: it saves where it has time to, waits, goes on."""

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


@pytest.fixture
def urgent(slurm: Any) -> Iterator[str]:
    """A partition of the a100 nodes whose jobs take them from others."""
    slurm.run("scontrol", "create", "PartitionName=urgent", "Nodes=a[1-2]", "PriorityTier=10", "MaxTime=60")
    yield "urgent"
    slurm.cancel_all()
    slurm.run("scontrol", "delete", "PartitionName=urgent")
    slurm.run("scontrol", "update", "PartitionName=a100", "GraceTime=0")


@pytest.mark.parametrize(
    "grace_s",
    [pytest.param(0, id="at once", marks=pytest.mark.nightly), pytest.param(60, id="with time to save")],
)
def test_a_preempted_job_resumes(training: Any, check: Any, urgent: str, grace_s: int) -> None:
    training.slurm.run("scontrol", "update", "PartitionName=a100", f"GraceTime={grace_s}")
    training.plan(gpus=2)
    job = training.submit("--partition", "a100")
    training.wait("two workers train", training.trains(world=2))
    training.wait("a checkpoint", training.saved)
    words = ("--exclusive", "--nodes=2", "--output=/dev/null", "--wrap=sleep 5")
    training.slurm.run("sbatch", f"--partition={urgent}", *words)
    training.wait("it waits for its nodes", lambda: training.slurm.job(job)["JobState"] == "PENDING")
    seen = len(training.records())
    saved, last = (newest(training.records(), kind) for kind in ("checkpoint", "step"))
    assert saved == last or not grace_s
    training.wait("it goes on", training.trains(world=2, since=seen))
    assert training.slurm.job(job)["Restarts"] == "1"
    assert check.continuous(training.records())
    assert check.losses_fall(training.records())


def newest(records: list[dict[str, Any]], event: str) -> int:
    """The step of the newest record of a kind."""
    return int(next(record["step"] for record in reversed(records) if record["event"] == event))
