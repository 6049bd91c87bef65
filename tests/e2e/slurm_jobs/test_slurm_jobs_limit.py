"""A real torchrun job near its time limit, and one whose node dies: it saves, goes on, its loss with it."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_saves_before_its_time_limit_and_survives_a_dead_node(desk: Any, check: Any) -> None:
    desk.plan(gpus=2)
    job = desk.submit("--partition", "a100")
    desk.wait("two workers train", desk.trains(world=2))
    desk.wait("a checkpoint", desk.saved)
    minutes = 1 + int(re.split("[:-]", desk.slurm.job(job)["RunTime"])[-2])
    desk.slurm.run("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + 3}")
    desk.wait("it saved and waits again", lambda: "rightsizer: saved; requeue" in desk.said())
    desk.slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    seen = len(desk.records())
    desk.wait("it goes on", desk.trains(world=2, since=seen))
    assert desk.slurm.job(job)["Restarts"] == "1"

    seen = len(desk.records())
    other = ({"a1", "a2"} - {desk.slurm.job(job)["BatchHost"]}).pop()
    desk.slurm.control("node-down", other)
    try:
        desk.wait("one worker goes on", desk.trains(world=1, since=seen))
    finally:
        desk.slurm.control("node-up", other)
    assert desk.slurm.job(job)["Restarts"] == "1"
    assert check.continuous(desk.records())
    assert check.losses_fall(desk.records())
