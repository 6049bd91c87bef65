"""Checks of a release's files before their upload."""

import email
import re
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.images.errors import BuildError
from deploy.release.standalone import loader


def wheel(file: Path, packages: Iterable[Path], tracked: Iterable[Path]) -> str:
    """The wheel's version. BuildError if it lacks a file of a package that git tracks."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(about))
    lacks = sorted(set(_inside(packages, tracked)) - names)
    if lacks:
        raise BuildError(f"{file.name} lacks {', '.join(lacks)}")
    return str(metadata["Version"])


def source(file: Path, tracked: Iterable[Path], *, clean: bool) -> None:
    """BuildError if the source distribution lacks a file that git tracks or, of a tag, has another."""
    with tarfile.open(file) as archive:
        names = {entry.name.partition("/")[2] for entry in archive if not entry.isdir()}
    wanted = {str(path) for path in tracked}
    if lacks := sorted(wanted - names):
        raise BuildError(f"{file.name} lacks {', '.join(lacks)}")
    if clean and (strange := sorted(names - wanted - {"PKG-INFO"})):
        raise BuildError(f"{file.name} has what git does not track: {', '.join(strange)}")


def _inside(packages: Iterable[Path], tracked: Iterable[Path]) -> Iterator[str]:
    """Each tracked file of a package, by its name in the wheel."""
    for package in packages:
        for path in tracked:
            if path.is_relative_to(package):
                yield str(path.relative_to(package.parent))
                assert (package / "py.typed") in tracked, f"{package} has no py.typed"


def chart(file: Path, helm: Path, image: str) -> None:
    """BuildError unless Helm accepts the chart and its operator runs this image."""
    for argv in (["lint", "--strict", file], ["template", "here", file]):
        done = subprocess.run([helm, *argv], check=False, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"helm {argv[0]} {file.name}: {(done.stderr or done.stdout).strip()}")
    found = re.findall(r"^\s*image: \"?([^\s\"]+)", done.stdout, flags=re.MULTILINE)
    if set(found) != {image}:
        raise BuildError(f"{file.name} runs {', '.join(found) or 'no image'}; the release builds {image}")


def standalone(file: Path, version: str, architecture: str) -> None:
    """BuildError unless the archive's command runs where it is unpacked, with no library of this machine."""
    with tempfile.TemporaryDirectory(prefix="a folder ") as folder:
        with tarfile.open(file) as tar:
            tar.extractall(folder, filter="tar")
        (root,) = Path(folder).iterdir()
        asked = [root / "bin/rightsizer", "--version"]
        done = subprocess.run(
            asked, check=False, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
        )
        if done.stdout != f"rightsizer {version}\n":
            raise BuildError(f"{file.name}: rightsizer --version: {(done.stderr or done.stdout).strip()}")
        timed = [path.name for path in sorted(root.rglob("*.pyc")) if not _is_unchecked(path)]
        strange = sorted({line for path in _programs(root) for line in _strange(path, root, architecture)})
    if timed:
        raise BuildError(f"{file.name}: bytecode that is out of date once unpacked: {', '.join(timed)}")
    if strange:
        raise BuildError(f"{file.name} needs what it does not have: {'; '.join(strange)}")


def _is_unchecked(bytecode: Path) -> bool:
    """Whether Python takes it whatever its source's time (PEP 552)."""
    return int.from_bytes(bytecode.read_bytes()[4:8], "little") == 1


def _programs(root: Path) -> Iterator[Path]:
    """Each program and library."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as data:
                if data.read(4) == b"\x7fELF":
                    yield path


def _strange(program: Path, root: Path, architecture: str) -> Iterator[str]:
    """Libraries that the program is linked to and the tree lacks."""
    argv = [*loader(root, architecture), "--list", program]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name, _, found = line.strip().partition(" => ")
        if found and not found.startswith(str(root)):
            yield f"{program.relative_to(root)}: {name}"
