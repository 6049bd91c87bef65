"""The base of an image: Debian packages by version and hash, unpacked without their maintainer scripts.

apt resolves them against an empty system, so the machine's own packages do not count. Nothing needs root.
"""

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.images.errors import BuildError

INTO_USR = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
"""Folders of / that are links into /usr; packages still name some of them."""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_LINE = re.compile(r"(?P<name>[a-z0-9.+-]+)=(?P<version>[\w.+:~-]+) sha256:(?P<sha256>[0-9a-f]{64})")
_FIELD = re.compile(r"^(Package|Version|SHA256): (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One binary package of one version."""

    name: str
    version: str
    sha256: str


def architecture() -> str:
    """This machine's, in Debian's and in OCI's words: amd64 or arm64."""
    return _run("dpkg", "--print-architecture").strip()


@functools.cache
def resolve(names: tuple[str, ...]) -> tuple[Package, ...]:
    """The packages and all that they depend on, as the machine's package sources have them now."""
    empty = ("-o", "Dir::State::status=/dev/null", "--no-install-recommends", "--yes")
    planned = _run("apt-get", "install", "--print-uris", *empty, *names)
    files = re.findall(r"^'[^']*' (\S+)_(\S+)_\w+\.deb \d+", planned, re.MULTILINE)
    wanted = sorted((name, version.replace("%3a", ":")) for name, version in files)
    shown = _run("apt-cache", "show", *(f"{name}={version}" for name, version in wanted))
    hashes = {(f["Package"], f["Version"]): f["SHA256"] for f in map(_fields, shown.split("\n\n")) if f}
    return tuple(Package(name=n, version=v, sha256=hashes[n, v]) for n, v in wanted)


def _fields(paragraph: str) -> dict[str, str]:
    return dict(_FIELD.findall(paragraph))


def text_of(packages: Iterable[Package]) -> str:
    """The packages as a lock's lines."""
    return "".join(f"{p.name}={p.version} sha256:{p.sha256}\n" for p in packages)


def locked(text: str) -> tuple[Package, ...]:
    """The packages of a lock's lines."""
    found = [_LINE.fullmatch(line) for line in text.splitlines()]
    if None in found:
        raise BuildError("the base lock is damaged: run `make lock`")
    return tuple(Package(**match.groupdict()) for match in found if match)


def fetch(packages: Sequence[Package], cache: Path) -> list[Path]:
    """The packages' files; apt downloads those that the cache does not have."""
    cache.mkdir(parents=True, exist_ok=True)
    files = {package: cache / f"{package.sha256}.deb" for package in packages}
    missing = [f"{package.name}={package.version}" for package in packages if not files[package].exists()]
    if missing:
        with tempfile.TemporaryDirectory(dir=cache) as fresh:
            try:
                _run("apt-get", "download", *missing, folder=Path(fresh))
            except BuildError as error:
                raise BuildError(
                    f"{error}; if Debian has replaced a locked version, run `make lock`"
                ) from None
            for file in Path(fresh).iterdir():
                file.rename(cache / f"{_sha256(file)}.deb")
    for package, file in files.items():
        if not file.exists() or _sha256(file) != package.sha256:
            file.unlink(missing_ok=True)
            raise BuildError(f"{package.name} {package.version}: its file has another hash than the lock")
    return list(files.values())


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def unpack(files: Iterable[Path], root: Path) -> None:
    """The packages' files below `root`, the certificates in one file, and what scanners read of packages."""
    for folder in INTO_USR:
        (root / "usr" / folder).mkdir(parents=True, exist_ok=True)
        (root / folder).symlink_to(f"usr/{folder}")
    for folder in ("dev", "proc", "sys", "root", "var/lib/dpkg"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    status = []
    for file in files:
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as data:
            into = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", root]
            subprocess.run(into, check=True, stdin=data.stdout)
        status.append("Status: install ok installed\n" + _run("dpkg-deb", "--field", str(file)))
    (root / "var/lib/dpkg/status").write_text("\n".join(status))
    for folder in ("usr/share/man", "usr/share/locale", "usr/share/lintian"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for path in (root / "usr/share/doc").glob("*/*"):
        if path.name != "copyright":  # their licences ask for it
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _write_certificates(root)


def _write_certificates(root: Path) -> None:
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    if authorities:
        (root / CERTIFICATES).parent.mkdir(parents=True, exist_ok=True)
        (root / CERTIFICATES).write_text("".join(each.read_text() for each in authorities))


def _run(*argv: str, folder: Path | None = None) -> str:
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BuildError(f"{' '.join(argv[:2])} failed: {reason}")
    return done.stdout
