"""docs/install.md, Laptop: pip and uv, without this checkout."""

import subprocess

import pytest

pytestmark = [pytest.mark.install, pytest.mark.slow]


def version(release):
    (wheel,) = release.glob("*.whl")
    return wheel.name.split("-")[1]


def test_pip_installs_a_command_that_plans(shell, blocks, release):
    with_pip, _ = blocks("Laptop")
    said = shell(with_pip)
    assert "H100-SXM5-80GB" in said
    assert "deadline" in said
    assert shell("~/rightsizer/bin/rightsizer --version") == f"rightsizer {version(release)}\n"


def test_types_and_the_files_of_slurm_come_with_the_wheel(shell):
    shell("python3 -m venv ~/rightsizer; ~/rightsizer/bin/pip install --quiet rightsizer")
    held = shell(
        "cd ~/rightsizer/lib/python3*/site-packages; find rightsizer* -name py.typed -o -name '*.lua'"
    )
    assert held.count("py.typed") == 7
    assert {"job_submit.lua", "rightsizer.lua"} <= {line.rpartition("/")[2] for line in held.splitlines()}


def test_uv_installs_upgrades_and_removes_a_tool(shell, blocks, release):
    _, with_uv = blocks("Laptop")
    assert f"rightsizer {version(release)}" in shell(with_uv)
    with pytest.raises(AssertionError, match="rightsizer"):
        shell("command -v rightsizer || { echo no rightsizer; exit 1; }")


def test_the_release_s_sums_are_those_of_its_files(release):
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=False, cwd=release)
    assert done.returncode == 0
