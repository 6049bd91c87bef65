"""The monitor in the daemon, on a real Slurm: what it serves, and that of two monitors one acts."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_the_daemon_reports_every_gpu_job(site: Any) -> None:
    options = ("--nodes=2", "--gres=gpu:h100:4", "--output=/dev/null", "--wrap=sleep 300")
    job = site.slurm.run("sbatch", "--parsable", *options).strip()
    line = re.compile(rf'^rightsizer_slurm_job_gpus{{cluster="\w+",jobid="{job}"}} 8\.0$', re.MULTILINE)
    site.slurm.wait("the job is told of", lambda: line.search(site.slurm.metrics()) is not None)
    assert "rightsizer_slurm_sweep_timestamp_seconds" in site.slurm.metrics()


def test_of_two_monitors_with_one_state_one_acts(site: Any) -> None:
    site.slurm.wait(
        "the daemon's monitor works", lambda: "rightsizer_slurm_sweep_seconds" in site.slurm.metrics()
    )
    state = re.search(r"^state = (\S+)$", site.conf.read_text(), re.MULTILINE)
    assert state is not None
    command = (
        Path(sys.executable).with_name("rightsizer"),
        "slurm",
        "monitor",
        "--sweeps=1",
        "--state",
        state[1],
    )
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env=dict(site.slurm.environment), timeout=120
    )
    assert (done.returncode, "another monitor uses it" in done.stderr) == (2, True), done.stderr
