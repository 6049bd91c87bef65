"""A job in a private home is watched through the copies that it publishes itself."""

import os
import stat
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.monitor.inspection import monitored_job
from rightsizer_slurm.monitor.publish import TAIL_BYTES, publish

STEP = '{"event": "step", "time": 1.0, "step": 3}\n'


@pytest.fixture
def run(tmp_path, small_plan):
    """A run directory, and a folder of runs beside it."""
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "plan.yaml").write_text(small_plan)
    runfile.write(folder, runfile.RunFile(job_id=7))
    (folder / "progress.jsonl").write_text(STEP)
    return folder


def job(folder):
    return SlurmJob(
        job_id=7, user="ada", user_id=os.getuid(), states=("RUNNING",), gpus=1, nodes=1,
        comment=f"rightsizer: plan=/p.yaml run={folder}",
    )  # fmt: skip


def test_copies_stand_in_for_a_home_that_cannot_be_read(run, tmp_path):
    publish(run, tmp_path / "runs" / "7")
    run.rename(tmp_path / "private")
    assert not monitored_job(job(run)).ours
    monitored = monitored_job(job(run), runs=tmp_path / "runs")
    assert (monitored.ours, [mark.step for mark in monitored.marks]) == (True, [3])


def test_a_copy_of_another_user_is_not_read(run, tmp_path):
    publish(run, tmp_path / "runs" / "7")
    other = replace(job("/nowhere"), user_id=os.getuid() + 1)
    assert not monitored_job(other, runs=tmp_path / "runs").ours


def test_a_copy_follows_its_file_and_is_bounded(run, tmp_path):
    to = tmp_path / "runs" / "7"
    publish(run, to)
    (run / "progress.jsonl").write_text(STEP * 30_000)
    os.utime(run / "progress.jsonl", (2e9, 2e9))
    publish(run, to)
    assert (to / "progress.jsonl").stat().st_size == TAIL_BYTES


@pytest.mark.slow
def test_only_the_owner_and_the_group_can_open_a_copy_and_it_ends_with_its_script(run, tmp_path):
    to = tmp_path / "runs" / "7"
    script = subprocess.Popen(["sleep", "300"])
    argv = ("--run", str(run), "--to", str(to), "--until", str(script.pid))
    publisher = subprocess.Popen([sys.executable, "-m", "rightsizer_slurm.monitor.publish", *argv])
    while not (to / "progress.jsonl").exists():
        assert publisher.poll() is None
        time.sleep(0.05)
    script.kill()
    script.wait()
    assert publisher.wait() == 0
    assert stat.S_IMODE(to.stat().st_mode) & 0o777 == 0o770
    assert {stat.S_IMODE(copy.stat().st_mode) for copy in to.iterdir()} == {0o660}
