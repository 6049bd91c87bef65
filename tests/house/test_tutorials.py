"""The laptop tutorial's commands, as written; those of the clusters are in tests/e2e."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.torchrun
def test_the_laptop_tutorial_sizes_trains_and_calibrates(commands, tmp_path):
    shutil.copytree(ROOT / "examples/01-local", tmp_path / "examples/01-local")
    plan = tmp_path / "examples/01-local/plan.yaml"
    plan.write_text(plan.read_text().replace("tokens: 150k", "tokens: 20k"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_COLOR": "1", "PATH": path}
    env = {name: value for name, value in os.environ.items() if name != "RIGHTSIZER_CALIBRATION"} | own
    script = "".join(f"{command}\n" for command in commands("tutorials/laptop.md"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "H100-SXM5-80GB" in done.stdout
    assert "local-gpt: done" in done.stdout
    assert "correction of similar runs" in done.stdout
