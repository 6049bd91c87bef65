"""A real torchrun job that grows to a size at which it cannot start rolls back to the size that trained."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

REFUSES = "import os\nif os.environ['SLURM_JOB_NUM_NODES'] == '2':\n    raise SystemExit('too many of us')\n"


def test_a_growth_that_never_makes_a_step_ends_no_run(training: Any, check: Any) -> None:
    training.plan(gpus=1, most=2, restarts=0)
    script = training.folder / "paced_train.py"
    script.write_text(REFUSES + script.read_text())
    job = training.submit("--partition", "h100")
    training.wait("one worker trains", training.trains(world=1))
    training.wait("a checkpoint", training.saved)
    grown = training.rightsizer("slurm", "resize", job, "--nodes", "2")
    assert "runs on 2 nodes" in grown.stdout, grown.stdout + grown.stderr
    outcome = "2 nodes failed to start training (exit code 78); rolled back to 1 node"
    training.wait(
        "that fails", lambda: outcome in training.output() or training.slurm.job(job)["JobState"] == "FAILED"
    )
    assert outcome in training.output()
    training.wait("one worker goes on", training.trains(world=1, since=len(training.records())))
    watching = ("--sweeps", "1", "--annotate", "--state", training.folder / "monitor.db")
    assert training.rightsizer("slurm", "monitor", *watching).returncode == 0
    shown = training.slurm.job(job)
    assert shown["AdminComment"].strip() == f"[rightsizer/1 resize failed: {outcome}]"
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "2")
    assert check.continuous(training.records())
    assert check.losses_fall(training.records())
    assert [row["event"] for row in sizes(training)] == ["start", "start", "back", "start"]


def sizes(training: Any) -> list[dict[str, Any]]:
    """The job's records of its sizes."""
    return [json.loads(line) for line in (training.run / "sizes.jsonl").read_text().splitlines()]
