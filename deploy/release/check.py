"""What must hold of a release's files before they are uploaded."""

import email
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.images.errors import BuildError

__all__ = ["chart", "wheel"]


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
