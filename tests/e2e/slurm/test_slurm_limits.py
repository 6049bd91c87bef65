"""Limits of QOS and associations of a real slurmdbd: jobs are sized within them, and Slurm starts them."""

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}"
DENSE = "rightsizer: model=llama-3.1-8b tokens=10B deadline=72h"
BOOKS = """\
add qos small MaxTRESPerJob=gres/gpu=2
add qos crowd MaxTRESPerUser=gres/gpu=1
add qos brief MaxWall=01:00:00
add account lab
add account nlp parent=lab GrpTRES=gres/gpu=6
add user nobody account=nlp QOS=normal,small,crowd,brief DefaultQOS=normal
"""


@pytest.fixture(scope="module")
def limited(
    slurm: Any, slurm_control: Callable[..., subprocess.CompletedProcess[str]], site_of: Callable[..., Any]
) -> Iterator[Any]:
    """A site with accounting, whose plain user has an account with limits."""
    said = slurm_control("books", "up", accounting=True).stdout
    exports = dict(re.findall(r"^export (\w+)=(.*)$", said, flags=re.MULTILINE))
    books = dataclasses.replace(slurm, name="books", environment={**slurm.environment, **exports})
    for line in BOOKS.splitlines():
        books.run("sacctmgr", "--immediate", *line.split())
    site = site_of(books)
    site.restart()  # it reads limits when it starts, and then once a minute
    yield site
    slurm_control("books", "down")


@pytest.mark.parametrize(
    ("comment", "options", "gpus"),
    [
        (LORA.format("60m"), (), 2),
        (LORA.format("24h"), ("--qos=crowd",), 1),
        (LORA.format("60m"), ("--qos=small",), 2),
    ],
    ids=["association", "user of QOS", "job of QOS"],
)
def test_a_job_within_its_limits_is_sized_and_starts(
    limited: Any, comment: str, options: tuple[str, ...], gpus: int
) -> None:
    submitted = limited.sbatch(comment, *options, user="nobody", hold=False)
    assert submitted.tres["gres/gpu"] == str(gpus), submitted.said
    job = submitted.job["JobId"]
    limited.slurm.wait("it starts", lambda: limited.slurm.job(job)["JobState"] in {"RUNNING", "COMPLETED"})
    limited.slurm.cancel_all()


@pytest.mark.parametrize(
    ("comment", "options", "said"),
    [
        (DENSE, (), "6 GPUs of account nlp"),
        (LORA.format("30m"), ("--qos=small",), "2 GPUs of QOS small"),
        (LORA.format("60m"), ("--qos=crowd",), "1 GPUs of QOS crowd"),
        (LORA.format("24h") + " max=1", ("--qos=brief",), "a time limit of 1h of QOS brief"),
    ],
    ids=["group of account", "job of QOS", "user of QOS", "wall time of QOS"],
)
def test_what_no_limit_lets_be_is_refused_with_its_name(
    limited: Any, comment: str, options: tuple[str, ...], said: str
) -> None:
    submitted = limited.sbatch(comment, *options, user="nobody")
    assert (submitted.job, said in submitted.said) == (None, True), submitted.said


def test_the_same_request_of_two_users_is_sized_within_each_one_s_limits(limited: Any) -> None:
    assert limited.sbatch(DENSE, user="nobody").job is None
    assert limited.sbatch(DENSE).tres["gres/gpu"] == "8"
    assert limited.sbatch(DENSE, user="nobody").job is None


def test_rightsizer_sbatch_keeps_to_them_without_the_plugin(limited: Any, tmp_path: Path) -> None:
    script = limited.folder / "job.sh"
    script.write_text(f'#!/bin/sh\n#SBATCH --comment="{DENSE}"\n#SBATCH --account=nlp\nsleep 1\n')
    script.chmod(0o755)
    environment = {**limited.slurm.environment, "HOME": str(tmp_path), "SBATCH_QOS": "small"}
    argv = (Path(sys.executable).with_name("rightsizer"), "sbatch", script)
    done = subprocess.run(argv, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert (done.returncode, "2 GPUs of QOS small" in done.stdout) == (3, True), done.stdout + done.stderr


def test_sacct_shows_the_decision_once_the_job_has_ended(limited: Any) -> None:
    submitted = limited.sbatch(LORA.format("24h"))
    job = submitted.job["JobId"]

    def record() -> list[str]:
        line = limited.slurm.run(
            "sacct", "-nXP", f"--jobs={job}", "--format=state,comment,admincomment"
        ).strip()
        return line.split("|")

    limited.slurm.wait("slurmdbd has the job", lambda: record() == ["PENDING", "", ""])
    limited.slurm.run("scancel", job)
    limited.slurm.wait("its decision", lambda: "[rightsizer/1 nodes=1 gpus=1 " in record()[-1])
    assert (record()[0].split()[0], record()[1]) == ("CANCELLED", "")  # no AccountingStoreFlags=job_comment
