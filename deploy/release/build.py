"""Build and check everything that a release uploads; upload nothing.

    python -m deploy.release.build --helm HELM --nfpm NFPM [--out DIR] [--tag v1.2.3] [--images NAME,...]

DIR gets the wheel, the source distribution, the chart, the images, the .deb, the .rpm, the archive with its
own Python, a bill of materials for what the wheel needs, for the archive and for each image, images.txt
(name, reference, digest), and SHA256SUMS.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.images import build as images
from deploy.images import debian, sbom
from deploy.images.errors import BuildError
from deploy.images.wheels import BACKENDS
from deploy.release import chart, check, linux, notes, standalone

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "rightsizer"
UV = REPOSITORY / ".tools/bin/uv"


def main(argv: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist/release"), help="folder; emptied first")
    parser.add_argument("--tag", default="", help="the tag of this release, v1.2.3: must be the version")
    parser.add_argument("--images", default="operator", help="names, with commas between, or `all`")
    parser.add_argument("--newest", action="store_true", help="Debian's newest packages in the images")
    parser.add_argument("--helm", type=Path, required=True)
    parser.add_argument("--nfpm", type=Path, required=True)
    try:
        for line in _release(parser.parse_args(argv)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def _release(asked: argparse.Namespace) -> Iterator[str]:
    """Build the release; yield each step's result when it is finished."""
    out = asked.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    wheel = _distributions(out)
    tracked = _tracked()
    version = check.wheel(wheel, _packages(), tracked)
    check.source(out / f"rightsizer-{version}.tar.gz", tracked, clean=bool(asked.tag))
    _tag(asked.tag, version)
    yield f"{wheel.name} and {version} as source"
    (out / f"rightsizer-{version}.spdx.json").write_text(sbom.text(_needs(wheel, version)))
    packed = chart.package(CHART, version, out)
    for name in images.images() if asked.images == "all" else asked.images.split(","):
        made = images.build(images.images()[name], out, cache=images.CACHE, newest=asked.newest)
        shutil.rmtree(out / name)  # the layout; the archive has it
        with (out / "images.txt").open("a") as listed:
            listed.write(f"{name} {made.reference} {made.digest}\n")
        yield f"{made.reference}@{made.digest}"
        if name == "operator":
            check.chart(packed, asked.helm, made.reference)
            yield f"{packed.name} runs it"
    architecture = debian.architecture()
    for package in linux.packages(wheel, version, out, architecture=architecture, uv=UV, nfpm=asked.nfpm):
        yield package.name
    archive = standalone.build(wheel, version, out, cache=images.CACHE, newest=asked.newest)
    check.standalone(archive.file, version, architecture)
    digest = hashlib.sha256(archive.file.read_bytes()).hexdigest()
    holds = sbom.spdx(
        archive.file.name, digest, debian=archive.debian, python=archive.python, created=images.moment()
    )
    archive.sbom.write_text(sbom.text(holds))
    yield archive.file.name
    (out / "SHA256SUMS").write_text("".join(_sums(out)))
    yield f"{out}: nothing is uploaded"


def _distributions(out: Path) -> Path:
    """The source distribution, and the wheel built from it; the wheel."""
    argv = [UV, "build", "--quiet", "--build-constraint", BACKENDS, "--require-hashes", "--out-dir", out]
    done = subprocess.run([*argv, REPOSITORY], check=False, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"uv build failed: {done.stderr.strip()}")
    (out / ".gitignore").unlink(missing_ok=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def _packages() -> list[Path]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    return [Path(name) for name in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def _tracked() -> list[Path]:
    argv = ["git", "-C", REPOSITORY, "ls-files", "-z"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"a release is built from a git checkout: {done.stderr.strip()}")
    return [Path(name) for name in done.stdout.split("\0") if name]


def _tag(tag: str, version: str) -> None:
    """A release's tag, version and changelog agree; without a tag there is nothing to compare."""
    if not tag:
        return
    if tag != f"v{version}":
        raise BuildError(f"the tag is {tag}, the version {version}: tag the commit v{version}")
    notes.notes(notes.CHANGELOG.read_text(), version)


def _needs(wheel: Path, version: str) -> dict[str, object]:
    """The wheel and the packages of the lock that the .deb and the .rpm install with it."""
    needs = [("rightsizer", version), *linux.locked()]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return sbom.spdx(f"rightsizer {version}", digest, debian=[], python=needs, created=images.moment())


def _sums(out: Path) -> Iterator[str]:
    """A line of sha256sum for each file."""
    for file in sorted(path for path in out.iterdir() if path.is_file()):
        with file.open("rb") as data:
            yield f"{hashlib.file_digest(data, 'sha256').hexdigest()}  {file.name}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
