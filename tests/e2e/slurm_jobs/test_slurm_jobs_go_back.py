"""A real torchrun job that is grown to a size at which it cannot start goes back to the one that trained."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

REFUSES = "import os\nif os.environ['SLURM_JOB_NUM_NODES'] == '2':\n    raise SystemExit('too many of us')\n"


def test_a_growth_that_never_makes_a_step_ends_no_run(desk: Any, check: Any) -> None:
    desk.plan(gpus=1, most=2, restarts=0)
    script = desk.folder / "small_train.py"
    script.write_text(REFUSES + script.read_text())
    job = desk.submit("--partition", "h100")
    desk.wait("one worker trains", desk.trains(world=1))
    desk.wait("a checkpoint", desk.saved)
    grown = desk.rightsizer("slurm", "resize", job, "--nodes", "2")
    assert "runs on 2 nodes" in grown.stdout, grown.stdout + grown.stderr
    back = "2 nodes ended with exit code 78 before a step; back to 1, which trained"
    desk.wait("that fails", lambda: back in desk.said() or desk.slurm.job(job)["JobState"] == "FAILED")
    assert back in desk.said()
    desk.wait("one worker goes on", desk.trains(world=1, since=len(desk.records())))
    watching = ("--sweeps", "1", "--annotate", "--state", desk.folder / "monitor.db")
    assert desk.rightsizer("slurm", "monitor", *watching).returncode == 0
    shown = desk.slurm.job(job)
    assert (
        shown["AdminComment"].strip() == f"rightsizer/1 resize failed: {back.removesuffix(', which trained')}"
    )
    assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "2")
    assert check.continuous(desk.records())
    assert check.losses_fall(desk.records())
    assert [row["event"] for row in sizes(desk)] == ["start", "start", "back", "start"]


def sizes(desk: Any) -> list[dict[str, Any]]:
    """What the job wrote of its sizes."""
    return [json.loads(line) for line in (desk.run / "sizes.jsonl").read_text().splitlines()]
