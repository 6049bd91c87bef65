"""The systemd unit of the daemon keeps what an intruder in it could do small."""

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "slurm/rightsizer_slurm/data/rightsizer-slurm.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_rates_the_unit_s_exposure_as_ok():
    argv = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", UNIT]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
