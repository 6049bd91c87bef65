"""One folder with rightsizer, Python and a C library, for Linux without them; it works wherever it lies.

usr/ holds files of the images' pinned Debian packages, and the wheel with what it needs. bin/python3 starts
Python through the folder's own loader (ld.so(8)), so the machine's C library may be older, or another one.
Only that process uses these libraries: no variable is exported, so what it starts (sbatch) has the machine's.
"""

import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.images import build as images
from deploy.images import debian, oci, wheels
from deploy.images.layer_store import LayerStore
from deploy.release import linux

PACKAGES = frozenset({
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("libc6", "libcrypt1", "libgcc-s1", "libstdc++6", "zlib1g", "libbz2-1.0", "liblzma5"),
    *("libexpat1", "libffi8", "libsqlite3-0", "libssl3", "libuuid1"),
})  # fmt: skip
"""Those of the operator image's packages that the interpreter and its modules are linked to."""
_KEPT = (
    "usr/bin/python3.11",
    "usr/lib/*-linux-gnu/*.so*",
    "usr/lib/python3.11",
    "usr/share/doc",
    "var/lib/dpkg",
)
_LEFT_OUT = (
    *("pydoc_data", "test", "turtle.py", "turtledemo", "sitecustomize.py"),
    *("lib-dynload/_curses*", "lib-dynload/_dbm.*", "lib-dynload/nis.*", "lib-dynload/readline.*"),
)
"""Of the standard library: what no command imports, or what is linked to packages that are not here."""
_MACHINES = {"amd64": ("x86_64", "ld-linux-x86-64.so.2"), "arm64": ("aarch64", "ld-linux-aarch64.so.1")}
_FILES = Path(__file__).with_name("standalone_files")
_COMPRESSION = 6
_TIME_S = 1_577_836_800
"""2020-01-01, of every file: tar warns of 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The archive and its contents."""

    file: Path
    debian: tuple[debian.Package, ...]
    python: tuple[tuple[str, str], ...]

    @property
    def sbom(self) -> Path:
        """The path of its bill of materials."""
        return self.file.with_name(self.file.name.replace(".tar.gz", ".spdx.json"))


def build(wheel: Path, version: str, out: Path, *, cache: Path, newest: bool) -> Archive:
    """rightsizer_VERSION_linux_MACHINE.tar.gz: the same files give the same bytes."""
    architecture = debian.architecture()
    image = images.images()["operator"]
    packages = debian.resolve(image.debian) if newest else debian.locked(image.base_lock.read_text())
    packages = tuple(package for package in packages if package.name in PACKAGES)
    name = name_of(version, architecture)
    with tempfile.TemporaryDirectory() as work:
        store = LayerStore(folder=cache, layout=oci.Layout(Path(work) / "layers"), key=architecture)
        made_from = "\0".join((debian.text_of(packages), linux.LOCK.read_text(), *_sources()))
        part = store.layer(made_from, lambda root: _fill(root, packages, architecture, cache))
        root = Path(work) / "tree" / name
        with tarfile.open(store.layout.blob(part.layer.digest)) as tar:
            tar.extractall(root, filter="tar")
        shutil.unpack_archive(wheel, root / wheels.SITE, "zip")
        _compile(root, sorted((root / wheels.SITE).glob("rightsizer*")), architecture)
        file = out / f"{name}.tar.gz"
        with file.open("wb") as stored:
            oci.write(stored, root.parent, compression=_COMPRESSION, time_s=_TIME_S)
    return Archive(file=file, debian=packages, python=(*part.python, ("rightsizer", version)))


def name_of(version: str, architecture: str) -> str:
    """The name of the file and of its folder; pip and uv would read rightsizer-VERSION as a source."""
    return f"rightsizer_{version}_linux_{_MACHINES[architecture][0]}"


def _sources() -> list[str]:
    """The layer's other inputs."""
    return [file.read_text() for file in (Path(__file__), *sorted(_FILES.iterdir()))]


def _fill(root: Path, packages: Sequence[debian.Package], architecture: str, cache: Path) -> None:
    """Everything but our own wheel."""
    with tempfile.TemporaryDirectory(dir=cache) as unpacked:
        debian.unpack(debian.fetch(packages, cache / "debian"), Path(unpacked))
        for path in (each for pattern in _KEPT for each in sorted(Path(unpacked).glob(pattern))):
            target = root / path.relative_to(unpacked)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    library = root / "usr/lib/python3.11"
    for path in (each for pattern in _LEFT_OUT for each in library.glob(pattern)):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (root / "usr/libexec").mkdir()
    (root / "usr/bin/python3.11").rename(root / "usr/libexec/python3.11")
    shutil.copy(_FILES / "sitecustomize.py", library)
    wheels.download(linux.LOCK, root, architecture=architecture, uv=images.UV)
    for tests in [path for path in (root / wheels.SITE).rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)
    _write_commands(root, architecture)
    _compile(root, [library, root / wheels.SITE], architecture)


def _write_commands(root: Path, architecture: str) -> None:
    """usr/bin, and bin as another name of it."""
    (root / "bin").symlink_to("usr/bin")
    name, file = _MACHINES[architecture]
    start = (_FILES / "python3").read_text().replace("@MACHINE@", name).replace("@LOADER@", file)
    _write_command(root / "usr/bin/python3", start)
    for command, module in linux.COMMANDS.items():
        text = (_FILES / "command").read_text().replace("@MODULE@", module)
        _write_command(root / "usr/bin" / command, text)


def _write_command(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def loader(root: Path, architecture: str) -> list[str | Path]:
    """The command that starts a program of the tree with the tree's libraries alone."""
    name, file = _MACHINES[architecture]
    libraries = root / "usr/lib" / f"{name}-linux-gnu"
    return [libraries / file, "--inhibit-cache", "--library-path", libraries]


def _compile(root: Path, folders: Sequence[Path], architecture: str) -> None:
    """Compile with the tree's own Python, so that the builder may have another."""
    python = [
        *loader(root, architecture),
        "--argv0",
        root / "usr/bin/python3",
        root / "usr/libexec/python3.11",
    ]
    wheels.compile_all(python, folders, root)
