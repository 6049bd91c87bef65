"""The .deb and the .rpm: /opt/rightsizer, a virtual environment for the Pythons that the distributions have.

Its libraries lie in lib/pythonX.Y for each; the package's script links bin/python to the newest of them.
"""

import json
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from deploy.images import licences
from deploy.images.errors import BuildError
from deploy.images.wheels import BACKENDS

PYTHONS = ("3.11", "3.12", "3.13")
"""Debian 12 and RHEL 9; Ubuntu 24.04, RHEL 9 and 10; Debian 13."""
LOCK = Path(__file__).with_name("plain.lock")
"""What the wheel needs without extras, with hashes."""
PREFIX = "/opt/rightsizer"
_PLATFORM = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
"""glibc 2.28: RHEL 8 and later."""
COMMANDS = {"rightsizer": "rightsizer_cli.start", "kubectl-rightsizer": "rightsizer_cli.kubectl.main"}
_SCRIPTS = Path(__file__).with_name("scripts")
_SETTINGS = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3\n"


def locked() -> list[tuple[str, str]]:
    """(name, version) of each package of the lock."""
    return re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), flags=re.MULTILINE)


def tree(wheel: Path, root: Path, *, architecture: str, uv: Path) -> None:
    """The environment below `root`, as it will be below PREFIX."""
    for python in PYTHONS:
        site = root / "lib" / f"python{python}" / "site-packages"
        _install(site, python, platform=_PLATFORM[architecture], uv=uv)
        zipfile.ZipFile(wheel).extractall(site)
    (root / "pyvenv.cfg").write_text(_SETTINGS)
    commands = root / "bin"
    commands.mkdir()
    for name, module in COMMANDS.items():
        path = commands / name
        path.write_text(f"#!{PREFIX}/bin/python\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        path.chmod(0o755)


def _install(site: Path, python: str, *, platform: str, uv: Path) -> None:
    target = ("--target", site, "--python-version", python, "--python-platform", platform)
    hashes = ("--require-hashes", "--build-constraints", BACKENDS)
    argv = [uv, "pip", "install", "--quiet", *target, *hashes, "--requirement", LOCK]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"uv pip install for Python {python} failed: {done.stderr.strip()}")
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    licences.check(site)


def packages(wheel: Path, version: str, out: Path, *, architecture: str, uv: Path, nfpm: Path) -> list[Path]:
    """The .deb and the .rpm."""
    with tempfile.TemporaryDirectory() as work:
        root, described = Path(work) / "root", Path(work) / "nfpm.yaml"
        tree(wheel, root, architecture=architecture, uv=uv)
        described.write_text(json.dumps(settings(root, version, architecture)))  # JSON is YAML
        return [_packaged(nfpm, described, kind, out) for kind in ("deb", "rpm")]


def _packaged(nfpm: Path, described: Path, kind: str, out: Path) -> Path:
    argv = [nfpm, "package", "--config", described, "--packager", kind, "--target", out]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"nfpm failed: {(done.stderr or done.stdout).strip()}")
    return Path(done.stdout.strip().rpartition("created package: ")[2])


def settings(root: Path, version: str, architecture: str) -> dict[str, object]:
    """The settings of nfpm; a development version sorts before its release in both formats."""
    contents: list[dict[str, object]] = [{"src": str(root), "dst": PREFIX, "type": "tree"}]
    contents += [
        {"src": f"{PREFIX}/bin/{name}", "dst": f"/usr/bin/{name}", "type": "symlink"} for name in COMMANDS
    ]
    return {
        "name": "rightsizer",
        "arch": architecture,
        "platform": "linux",
        "version": re.sub(r"\.?(a|b|rc|dev)", r"~\1", version),
        "version_schema": "none",
        "maintainer": "rightsizer <maintainers@rightsizer.dev>",
        "description": "Sizes training jobs: the command line and the daemon for Slurm.",
        "homepage": "https://github.com/rightsizer/rightsizer",
        "license": "Apache-2.0",
        "section": "admin",
        "mtime": "2020-01-01T00:00:00Z",
        "contents": contents,
        "scripts": {"postinstall": str(_SCRIPTS / "install.sh"), "preremove": str(_SCRIPTS / "remove.sh")},
        "overrides": {
            "deb": {"depends": [f"python3 (>= {PYTHONS[0]})"]},
            "rpm": {"depends": ["python3.12"]},
        },
        "deb": {"compression": "zstd"},
        "rpm": {"compression": "zstd"},
    }
