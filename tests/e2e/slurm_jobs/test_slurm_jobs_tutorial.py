"""docs/tutorials/slurm.md as written, with the test's plan for the cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).parents[3]


def test_the_slurm_tutorial_sizes_and_submits(training: Any, commands: Any) -> None:
    shutil.copytree(ROOT / "examples/01-local", training.folder / "examples/01-local")
    shutil.copytree(ROOT / "examples/03-slurm", training.folder / "examples/03-slurm")
    plan = training.folder / "examples/03-slurm/plan.yaml"
    text = plan.read_text()
    plan.write_text(text.replace("launch:\n", "launch:\n    env: [{name: GLOO_SOCKET_IFNAME, value: lo}]\n"))
    environment = training.environment()
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "".join(commands("tutorials/slurm.md"))],
        check=False,
        capture_output=True,
        text=True,
        cwd=training.folder,
        env={**environment, "PATH": path},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "#SBATCH --gres=gpu:a100:1" in done.stdout
    progress = training.folder / "first-run/progress.jsonl"
    training.wait("a step", lambda: progress.exists() and '"step"' in progress.read_text())
