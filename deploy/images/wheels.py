"""The Python layers of an image: locked packages, our own wheel, their commands."""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from deploy.images import licences
from deploy.images.errors import BuildError

PYTHON = "3.11"
"""Debian 12's Python."""
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
"""Where Debian's Python looks without being told."""
BACKENDS = Path(__file__).with_name("build.lock")
"""The build backends, with hashes."""
_PLATFORM = {"amd64": "x86_64-manylinux_2_36", "arm64": "aarch64-manylinux_2_36"}


def install_locked(lock: Path, root: Path, *, architecture: str, uv: Path) -> None:
    """The packages of a lock below `root`, with their commands and bytecode."""
    download(lock, root, architecture=architecture, uv=uv)
    _finish(root)


def download(lock: Path, root: Path, *, architecture: str, uv: Path) -> None:
    """The packages of a lock below `root`, only with the lock's hashes and licences that let us ship them."""
    target = ("--python-version", PYTHON, "--python-platform", _PLATFORM[architecture])
    hashes = ("--require-hashes", "--build-constraints", BACKENDS)
    _uv(uv, "pip", "install", "--target", root / SITE, *target, *hashes, "--requirement", lock)
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    (root / SITE / ".lock").unlink(missing_ok=True)
    licences.check(root / SITE)


def install_own(repository: Path, root: Path, *, uv: Path) -> None:
    """The wheel of this checkout, built with the locked build backend."""
    locked = ("--build-constraint", BACKENDS, "--require-hashes")
    with tempfile.TemporaryDirectory() as work:
        _uv(uv, "build", "--wheel", "--out-dir", work, *locked, repository)
        (wheel,) = Path(work).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(root / SITE)  # an installer would note where the file was
    _finish(root)


def installed(root: Path) -> list[tuple[str, str]]:
    """(name, version) of every Python package below `root`."""
    found = metadata.distributions(path=[str(root / SITE)])
    return sorted({(each.metadata["Name"], each.version) for each in found})


def _finish(root: Path) -> None:
    """Commands that start the image's Python instead of the builder's, and bytecode."""
    site, commands = root / SITE, root / "usr/local/bin"
    commands.mkdir(parents=True, exist_ok=True)
    for each in metadata.distributions(path=[str(site)]):
        for entry in each.entry_points.select(group="console_scripts"):
            name = entry.attr.partition(".")[0]
            start = f"import sys\nfrom {entry.module} import {name}\nsys.exit({entry.attr}())\n"
            command = commands / entry.name
            command.write_text(f"#!/usr/bin/python3\n{start}")
            command.chmod(0o755)
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        compile_all([sys.executable], [site], root)


def compile_all(python: Sequence[str | Path], folders: Sequence[Path], root: Path) -> None:
    """Compile in a new process, without times: bytecode also depends on earlier compilations."""
    how = ("-q", "-q", "-s", root, "-p", "/", "--invalidation-mode", "unchecked-hash")
    argv = [*python, "-m", "compileall", *how, *folders]
    # What compileall itself imports would be kept with times and the builder's paths, and then passed over
    env = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(argv, check=False, env=env)  # some packages hold templates


def _uv(uv: Path, *arguments: str | Path) -> None:
    done = subprocess.run([uv, *arguments, "--quiet"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"uv {arguments[0]} {arguments[1]} failed: {done.stderr.strip()}")
