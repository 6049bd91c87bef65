"""The blocks of docs/install.md, the files of `make release-dry-run`, a copy of this machine."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
RELEASE = REPOSITORY / "dist" / "release"
OVERLAY = """
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for each in /proc /dev /sys; do mount --rbind "$each" "$1/root$each"; done
mkdir -p "$1/root$2"
mount --bind "$2" "$1/root$2"
cd "$1/root$2"
exec chroot "$1/root" bash -euo pipefail -c "cd '$2'; $3"
"""
"""A chroot with this machine's files in which every write is forgotten; the release's files are in $2."""
BARE = """
mount -t tmpfs tmpfs "$1"
dpkg-deb --extract "$3" "$1"
mkdir -p "$1/proc" "$1/dev" "$1/tmp" "$1/root" "$1/etc/systemd/system" "$1/stand-ins" "$1/release"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --bind "$2" "$1/release"
mount --bind "$4" "$1/stand-ins"
chroot "$1" /bin/busybox --install -s /bin
exec chroot "$1" /bin/busybox env -i PATH=/stand-ins:/bin HOME=/root /bin/sh -euc "cd /release; $5"
"""
"""A chroot of one static program: no C library, no Python, no certificates; the release's files are in $2."""
STAND_INS = {
    "systemctl": 'test "$1" = daemon-reload || test -f /etc/systemd/system/rightsizer-slurm.service',
    "scontrol": 'test "$1" = reconfigure',
}
"""No systemd and no slurmctld run in a chroot; tests/e2e/slurm has real ones."""


@pytest.fixture(scope="session")
def blocks() -> Callable[[str], list[str]]:
    """The blocks below a heading."""
    return _blocks


def _blocks(heading: str) -> list[str]:
    """The code of docs/install.md's `sh` blocks below a heading, in their order."""
    text = (REPOSITORY / "docs/install.md").read_text()
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```sh\n(.*?)^```$", section, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def repository() -> Path:
    """This checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def release() -> Path:
    """The folder of the files; a release that another commit's dry run left is not one of this checkout."""
    assert list(RELEASE.glob("*.whl")), "run `make release-dry-run` first (`make suite SUITE=install` does)"
    return RELEASE


def settings(release: Path, home: Path) -> dict[str, str]:
    """An environment without this checkout's: pip and uv find the release there, all else in the registry."""
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "SSL_", "UV_"))}
    path = os.pathsep.join(
        each for each in os.environ["PATH"].split(os.pathsep) if str(REPOSITORY) not in each
    )
    found = " ".join(filter(None, (str(release), kept.get("PIP_FIND_LINKS", ""))))
    ours = {"PATH": f"{home}/.local/bin:{path}", "HOME": str(home), "NO_COLOR": "1"}
    return kept | ours | {"PIP_FIND_LINKS": found, "UV_FIND_LINKS": str(release)}


class Shell:
    """Runs blocks one after the other, as a person would in one terminal."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder, self.env = folder, dict(env)

    def __call__(self, block: str) -> str:
        """The block's output; AssertionError, with it, if a command of it fails."""
        argv = ["bash", "-euo", "pipefail", "-c", block]
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, env=self.env, cwd=self.folder
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def shell(release: Path, tmp_path: Path) -> Shell:
    """A terminal of somebody without this checkout, in a home of its own with uv."""
    commands = tmp_path / ".local/bin"
    commands.mkdir(parents=True)
    (commands / "uv").symlink_to(REPOSITORY / ".tools/bin/uv")
    return Shell(tmp_path, settings(release, tmp_path))


def stand_ins(folder: Path) -> Path:
    """A folder with them."""
    tools = folder / "tools"
    tools.mkdir()
    for name, body in STAND_INS.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    return tools


@pytest.fixture
def bare(release: Path, tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Runs blocks as root on a Linux with nothing but busybox: one call, one machine."""
    if os.geteuid():
        pytest.skip("a chroot needs root")
    argv = ["apt-get", "download", "-qq", "busybox-static"]
    subprocess.run(argv, check=True, capture_output=True, cwd=tmp_path)
    (busybox,) = tmp_path.glob("*.deb")
    place, tools = tmp_path / "bare", stand_ins(tmp_path)
    place.mkdir()

    def run(block: str) -> subprocess.CompletedProcess[str]:
        argv = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", BARE, "bash"]
        place_names = [str(each) for each in (place, release, busybox, tools)]
        return subprocess.run([*argv, *place_names, block], check=False, capture_output=True, text=True)

    return run


@pytest.fixture
def machine(release: Path, tmp_path: Path) -> Shell:
    """Runs blocks as root in a copy of this machine whose changes end with the test: one call, one copy."""
    if os.geteuid():
        pytest.skip("a copy of the machine to install on needs root")
    place, tools = tmp_path / "machine", stand_ins(tmp_path)
    place.mkdir()
    env = settings(release, tmp_path)

    class Copy(Shell):
        def __call__(self, block: str) -> str:
            script = (
                f"export PATH={tools}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n{block}"
            )
            argv = ["unshare", "--mount", "--propagation", "private", "bash", "-euc", OVERLAY, "bash"]
            done = subprocess.run(
                [*argv, str(place), str(self.folder), script],
                check=False,
                capture_output=True,
                text=True,
                env=self.env,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
            return done.stdout

    return Copy(release, env)
