"""The operator's image: the steps of its build file, on this machine; no container runtime runs them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
LOCKS = ("requirements.lock", "deploy/image.lock", "deploy/build.lock")
STEPS = re.findall(r"^RUN (.*)$", DOCKERFILE, flags=re.M)


def pins(lock):
    """The requirement lines of a lock, each with its hashes."""
    found = re.findall(
        r"^(\S+==[^\\\n]+?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, flags=re.M
    )
    return {name: tuple(re.findall(r"sha256:\w+", hashes)) for name, hashes in found}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_pins_with_hashes_and_no_address(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert len(pins(text)) == sum(not line.startswith(("    --hash", "#")) for line in text.splitlines())


def test_the_image_runs_what_the_tests_run():
    image, tested = (pins((ROOT / name).read_text()) for name in ("deploy/image.lock", "requirements.lock"))
    assert image.items() <= tested.items()


@pytest.mark.parametrize("step", [step for step in STEPS if "pip" in step])
def test_each_installation_checks_hashes_or_installs_our_own_wheel(step):
    assert "--require-hashes" in step or "--no-deps" in step


def test_the_build_context_has_what_the_wheel_needs():
    kept = re.findall(r"^!(\S+)$", (ROOT / "deploy/Dockerfile.dockerignore").read_text(), flags=re.M)
    packages = re.search(r"^packages = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), flags=re.M)
    assert packages is not None
    assert {path.split("/")[0] for path in re.findall(r'"([^"]+)"', packages[1])} < set(kept)
    assert all(list(ROOT.glob(pattern)) for pattern in kept)


@pytest.mark.slow
def test_the_steps_of_the_build_file_make_a_command_that_has_the_operator(tmp_path):
    """Its paths are moved below a temporary folder, and /src is this checkout; all else is as it stands."""
    for step in STEPS:
        moved = re.sub(r"(?<![\w.])/(build|wheels|opt)\b", rf"{tmp_path}/\1", step)
        moved = re.sub(r"^python\b", sys.executable, moved)
        subprocess.run(["bash", "-ec", moved], check=True, cwd=ROOT)
    command = tmp_path / "opt/rightsizer/bin/rightsizer"
    options = subprocess.run(
        [command, "operator", "--help"], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert "--log-format" in options.stdout
    imported = [command.with_name("python"), "-c", "import rightsizer_operator.runtime.main"]
    subprocess.run(imported, check=True, cwd=tmp_path)
