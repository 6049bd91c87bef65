"""A real torchrun job near its time limit, and one whose node dies: it saves, goes on, its loss with it."""

import re
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_saves_before_its_time_limit_and_survives_a_dead_node(training: Any, check: Any) -> None:
    training.plan(gpus=2)
    job = training.submit("--partition", "a100")
    training.wait("two workers train", training.trains(world=2))
    training.wait("a checkpoint", training.saved)
    minutes = 1 + int(re.split("[:-]", training.slurm.job(job)["RunTime"])[-2])
    training.slurm.run("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes + 3}")
    training.wait("it saved and waits again", lambda: "rightsizer: saved; requeue" in training.output())
    training.slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    seen = len(training.records())
    training.wait("it goes on", training.trains(world=2, since=seen))
    assert training.slurm.job(job)["Restarts"] == "1"

    seen = len(training.records())
    other = ({"a1", "a2"} - {training.slurm.job(job)["BatchHost"]}).pop()
    training.slurm.control("node-down", other)
    try:
        training.wait("one worker goes on", training.trains(world=1, since=seen))
    finally:
        training.slurm.control("node-up", other)
    assert training.slurm.job(job)["Restarts"] == "1"
    assert check.continuous(training.records())
    assert check.losses_fall(training.records())
