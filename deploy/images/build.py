"""Build the images of images.toml as OCI layouts, without root, a daemon or a registry.

    python -m deploy.images.build [NAME...] --out DIR   build these images, or all
    python -m deploy.images.build --lock                write the locks of the bases

It prints each image with its digest. DIR/NAME is the layout, DIR/NAME.tar the same as one file,
DIR/NAME.spdx.json its packages and DIR/NAME.provenance.json what it was made of.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.images import debian, oci, sbom, wheels
from deploy.images.errors import BuildError
from deploy.images.layer_store import LayerStore

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
UV = REPOSITORY / ".tools/bin/uv"
REGISTRY = "ghcr.io/rightsizer"
CACHE = Path.home() / ".cache/rightsizer/images"
SOURCE = "https://github.com/rightsizer/rightsizer"
NON_ROOT = 65532
PASSWORDS = f"""\
root:x:0:0:root:/root:/usr/sbin/nologin
nonroot:x:{NON_ROOT}:{NON_ROOT}:nonroot:/home/nonroot:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
GROUPS = f"root:x:0:\nnonroot:x:{NON_ROOT}:\nnogroup:x:65534:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image: its Debian packages, the lock of its Python packages, its command."""

    name: str
    repository: str
    debian: tuple[str, ...]
    base_lock: Path
    lock: Path
    entrypoint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished image."""

    reference: str
    digest: str
    archive: Path


def images() -> dict[str, Image]:
    """The images by name: the operator's, and a worker's for each launched stack with a lock."""
    tables = tomllib.loads((HERE / "images.toml").read_text())
    operator, workers = tables["operator"], tables["workers"]
    made = [
        Image(
            name="operator",
            repository=operator["repository"],
            lock=REPOSITORY / operator["lock"],
            entrypoint=tuple(operator["entrypoint"]),
            **_base(tables, operator["base"]),
        )
    ]
    for lock in sorted((REPOSITORY / workers["locks"]).glob("*.lock")):
        repository = workers["repository"].format(stack=lock.stem)
        base = _base(tables, workers["base"])
        made.append(Image(name=repository, repository=repository, lock=lock, **base))
    return {image.name: image for image in made}


def _base(tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"debian": tuple(tables["base"][name]["packages"]), "base_lock": HERE / f"{name}.debian.lock"}


def build(image: Image, out: Path, *, cache: Path, newest: bool = False) -> Built:
    """Write the image as a layout and as one file, with its packages and provenance."""
    architecture = debian.architecture()
    packages = debian.resolve(image.debian) if newest else debian.locked(image.base_lock.read_text())
    shutil.rmtree(out / image.name, ignore_errors=True)
    layout = oci.Layout(out / image.name)
    store = LayerStore(folder=cache, layout=layout, key=architecture)
    parts = [
        store.layer(debian.text_of(packages), lambda root: _write_base(root, packages, cache)),
        store.layer(
            image.lock.read_text(),
            lambda root: wheels.install_locked(image.lock, root, architecture=architecture, uv=UV),
        ),
        store.layer("", lambda root: wheels.install_own(REPOSITORY, root, uv=UV)),
    ]
    layers, python = [part.layer for part in parts], [each for part in parts for each in part.python]
    reference = f"{REGISTRY}/{image.repository}:{dict(python)['rightsizer']}"
    digest = layout.image(
        reference,
        layers,
        architecture=architecture,
        config=_config(image),
        annotations={
            "org.opencontainers.image.source": SOURCE,
            "org.opencontainers.image.revision": _revision(),
            "org.opencontainers.image.base.digest": layers[0].digest,
        },
    )
    oci.archive(layout.folder, out / f"{image.name}.tar")
    document = sbom.spdx(reference, digest, debian=packages, python=python, created=moment())
    (out / f"{image.name}.spdx.json").write_text(sbom.text(document))
    locks = {file.name: _sha256(file) for file in (image.base_lock, image.lock, HERE / "build.lock")}
    statement = sbom.provenance(reference, digest, source=SOURCE, revision=_revision(), locks=locks)
    (out / f"{image.name}.provenance.json").write_text(sbom.text(statement))
    return Built(reference=reference, digest=digest, archive=out / f"{image.name}.tar")


def _write_base(root: Path, packages: Sequence[debian.Package], cache: Path) -> None:
    """The Debian packages, a user who is not root, and a /tmp for all."""
    debian.unpack(debian.fetch(packages, cache / "debian"), root)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(PASSWORDS)
    (root / "etc/group").write_text(GROUPS)
    (root / "home/nonroot").mkdir(parents=True)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)


def _config(image: Image) -> dict[str, object]:
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    return {
        "User": f"{NON_ROOT}:{NON_ROOT}",
        "WorkingDir": "/",
        "Entrypoint": list(image.entrypoint),
        "Env": [path, "PYTHONDONTWRITEBYTECODE=1"],
    }


def lock_bases() -> None:
    """Write the lock of every base from the machine's package sources."""
    for base_lock, packages in {image.base_lock: image.debian for image in images().values()}.items():
        base_lock.write_text(debian.text_of(debian.resolve(packages)))


def _revision() -> str:
    return _git("rev-parse", "HEAD") or "unknown"


def _git(*arguments: str) -> str:
    """The output of git for this checkout; empty if it is no checkout."""
    argv = ["git", "-C", str(REPOSITORY), *arguments]
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()


def moment() -> str:
    """SOURCE_DATE_EPOCH, else the commit's time, else now: a commit gives the same bytes at any time."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def main(argv: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description="Build OCI images without root, a daemon or a registry.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="images of images.toml; default: all")
    parser.add_argument("--out", type=Path, default=Path("dist/images"), help="folder to write to")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument(
        "--newest", action="store_true", help="Debian's newest packages instead of the lock's"
    )
    parser.add_argument("--lock", action="store_true", help="only write the bases' locks")
    asked = parser.parse_args(argv)
    known = images()
    try:
        if asked.lock:
            lock_bases()
            return 0
        asked.out.mkdir(parents=True, exist_ok=True)
        for name in asked.names or known:
            if name not in known:
                raise BuildError(f"{name}: the images are {', '.join(known)}")
            built = build(known[name], asked.out, cache=asked.cache, newest=asked.newest)
            sys.stdout.write(f"{built.reference} {built.digest} {built.archive}\n")
    except BuildError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
