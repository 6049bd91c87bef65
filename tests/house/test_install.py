"""The wheel alone, without extras, is enough to plan."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAN = ["plan", "--model", "gpt2", "--tokens", "1B", "--gpu", "A100-SXM4-40GB", "--gpus", "8"]
pytestmark = pytest.mark.slow  # builds a wheel and an environment: 5 to 10 s


def uv() -> str | None:
    """The uv that made this environment, or the one on PATH."""
    local = ROOT / ".tools/bin/uv"
    return str(local) if local.exists() else shutil.which("uv")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The command of an environment that holds the wheel and its plain dependencies, as locked."""
    tool = uv()
    if tool is None:
        pytest.skip("uv is not here: `make venv` puts it into .tools")
    place = tmp_path_factory.mktemp("bare")
    python = place / "venv/bin/python"
    pip = [tool, "pip", "install", "--quiet", "--python", str(python)]
    wheel = [tool, "build", "--quiet", "--wheel", "--out-dir", str(place), str(ROOT)]
    for command in (wheel, [tool, "venv", "--quiet", "--python", sys.executable, str(place / "venv")]):
        subprocess.run(command, check=True)
    (built,) = place.glob("*.whl")
    subprocess.run([*pip, "--constraint", str(ROOT / "requirements.lock"), str(built)], check=True)
    return python.with_name("rightsizer")


def run(command: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "NO_COLOR": "1"}
    return subprocess.run([command, *args], check=False, capture_output=True, text=True, env=env, cwd="/")


@pytest.mark.parametrize("args", [["--help"], PLAN, ["crd"]], ids=lambda args: args[0])
def test_a_bare_install_runs(installed, args):
    done = run(installed, *args)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not done.stderr


def test_a_plot_names_its_extra(installed):
    done = run(installed, *PLAN, "--plot", "curve.svg")
    assert done.returncode == 2
    assert "pip install 'rightsizer[plot]'" in done.stderr


def test_extras_are_not_there(installed):
    listed = subprocess.run(
        [installed.with_name("python"), "-c", "import torch"],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert "ModuleNotFoundError" in listed.stderr
