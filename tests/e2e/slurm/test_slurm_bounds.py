"""A real Slurm at the shipped settings: no job gets more than its user wrote, or ends otherwise than said."""

import dataclasses
import math
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M"
DENSE = "rightsizer: model=llama-3.1-8b tokens=10B"
SAVES = f"{DENSE} launch.checkpoint.path=/ckpt"


@pytest.fixture(scope="module")
def shipped(slurm: Any, site_of: Any) -> Iterator[Any]:
    """The site with a daemon that has sized nothing yet."""
    site = dataclasses.replace(site_of(slurm), again=False)
    site.restart()
    yield site
    slurm.cancel_all()


def sized(site: Any, comment: str, *options: str, hold: bool = True) -> dict[str, str]:
    """The job of a plain user once rightsizer has dealt with it; empty if sbatch refused it."""
    submitted = site.sbatch(comment, *options, user="nobody", hold=hold)
    if submitted.job is None:
        return {}
    job = submitted.job["JobId"]
    site.slurm.wait("the job is sized", lambda: " ticket=" not in site.slurm.job(job)["Comment"])
    return site.slurm.job(job) | {"Held": str("the job is held" in submitted.said)}


def minutes(text: str) -> float:
    """Minutes of Slurm's 1-02:03:00."""
    days, _, clock = text.rpartition("-")
    hours, mins, seconds = (int(part) for part in clock.split(":"))
    return 1440 * int(days or 0) + 60 * hours + mins + seconds / 60


NODES = [[], ["-N1"], ["-N2"], ["-N2-4"], ["--nodelist=n[1-2]"]]
GPUS = [[], ["--gres=gpu:3"], ["--gres=gpu:h100:2"], ["--gpus-per-node=5"], ["--gpus=6"], ["-G", "4"]]
TASKS = [[], ["-n4"], ["--ntasks-per-node=2"], ["-n6", "--ntasks-per-node=3"]]
TIMES = [
    [],
    ["--time=600"],
    ["--time-min=90"],
    ["--deadline=now+8hours"],
    ["--time=900", "--deadline=now+8hours"],
]
OTHERS = [[], [], ["--exclusive"], ["--cpus-per-task=4"], ["--partition=a100,h100"]]


def drawn(seed: int) -> list[str]:
    """One of each kind of option, by chance."""
    choose = random.Random(seed).choice  # noqa: S311 (the same options each time)
    return [option for kind in (NODES, GPUS, TASKS, TIMES, OTHERS) for option in choose(kind)]


OPTIONS = [["-N2", "--gres=gpu:3"], *map(drawn, range(23))]


def bound(options: list[str], pattern: str) -> float:
    found = re.search(rf"(?:^| ){pattern}(?= |$)", " ".join(options))
    return float(found[1]) if found else math.inf


@pytest.mark.parametrize(
    "number", range(len(OPTIONS)), ids=lambda number: " ".join(OPTIONS[number]) or "none"
)
def test_a_job_gets_no_more_than_its_user_wrote(shipped: Any, number: int) -> None:
    options = OPTIONS[number]
    job = sized(shipped, (DENSE, SAVES, LORA)[number % 3], *options)
    if not job or job["JobState"] == "CANCELLED":
        return  # refused, so it gets nothing
    nodes = int(job["NumNodes"].rpartition("-")[2])
    each = [int(count) for count in re.findall(r"gpu(?::\w+)?:(\d+)", job.get("TresPerNode", ""))]
    gpus = nodes * sum(each) or sum(map(int, re.findall(r"gpu(?::\w+)?:(\d+)", job.get("TresPerJob", ""))))
    limit = minutes(job["TimeLimit"])
    allowed = {
        "nodes": (nodes, min(bound(options, r"-N(?:\d-)?(\d)"), bound(options, r"--nodelist=n\[1-(\d)\]"))),
        "tasks": (nodes, bound(options, r"-n(\d)")),
        "of a node": (
            max(each, default=0),
            bound(options, r"--(?:gres=gpu|gpus-per-node=?)(?::h100)?:?(\d)"),
        ),
        "gpus": (gpus, min(bound(options, r"--gpus=(\d)"), bound(options, r"-G (\d)"))),
        "time": (limit, bound(options, r"--time=(\d+)")),
        "deadline": (limit, 60 * bound(options, r"--deadline=now\+(\d)hours")),
    }
    if "nodes=" not in job["AdminComment"] or job["Held"] == "False":
        del allowed["deadline"]  # as it was written; or sized at once, when Slurm 22.05 shows it to nobody
    broken = {name: pair for name, pair in allowed.items() if pair[0] > pair[1]}
    assert broken == {}, job
    assert limit >= (90 if "--time-min=90" in options else 0)


@pytest.mark.parametrize("option", ["--gpus=0", "--gres=gpu:0", "--gpus-per-node=0"])
def test_no_gpus_means_none(shipped: Any, option: str) -> None:
    job = sized(shipped, LORA, option, hold=False)
    assert "gpu:h100" not in job.get("TresPerNode", ""), job


def test_a_deadline_of_the_command_line_binds_the_size_of_a_held_job(shipped: Any) -> None:
    comment = f"{LORA} deadline=20h"  # asked for the first time, so it is held
    job = sized(shipped, comment, "--deadline=now+3hours", "--nodes=1")
    note = job["AdminComment"]
    assert ("nodes=1" in note, 20 <= minutes(job["TimeLimit"]) <= 180) == (True, True), job
    late = sized(shipped, f"{DENSE} deadline=40h", "--deadline=now+2hours", "--nodes=4")
    assert ("nodes=" in late["AdminComment"], "of --deadline" in late["AdminComment"]) == (False, True), late


def test_a_script_without_a_requeue_gets_the_note_that_it_ends_at_its_limit(shipped: Any) -> None:
    job = sized(shipped, SAVES, "--time=61", "--nodes=1")
    assert "ends at its time limit, before the training" in job["AdminComment"], job


REQUEUES = """\
trap 'scontrol requeue $SLURM_JOB_ID; sleep 60' USR1
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || sleep 90 & wait
"""


def test_a_script_with_the_note_of_a_requeue_is_requeued(shipped: Any) -> None:
    options = ("--output=/dev/null", "--time=1", "--signal=B:USR1@50", "--nodes=1", f"--comment={SAVES}")
    argv = ("sbatch", "--parsable", *options, f"--wrap={REQUEUES}")
    job = shipped.answered(*argv, user="nobody").stdout.strip()
    shipped.slurm.wait("it ends", lambda: shipped.slurm.job(job)["JobState"] == "COMPLETED", within_s=180)
    assert shipped.slurm.job(job)["Restarts"] == "1"
    assert "for 1m, requeued by its script at each time limit" in shipped.log()
