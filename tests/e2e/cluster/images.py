"""Images without a registry: local tags of images that hold next to nothing.

The nodes mount this machine's /usr, the virtual environment and the checkout, read-only, into every container
(see node.py). So an image needs only empty folders to mount on, a user, a PATH and, for a training image, the
user's files; and a manifest keeps the `image:` that its author would write.
"""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from place import REPOSITORY

FOLDERS = ("dev", "etc", "opt", "proc", "root", "run", "sys", "usr", "var", "work", "workspace")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
INTO_USR = ("bin", "sbin", "lib", "lib64")
PATH = f"{Path(sys.prefix) / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NON_ROOT = "65532"
PASSWORDS = f"""\
root:x:0:0:root:/root:/bin/sh
nonroot:x:{NON_ROOT}:{NON_ROOT}:nonroot:/tmp:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/sh
"""
PAUSE = "registry.k8s.io/pause:3.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image, as a Dockerfile would describe it."""

    name: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    workdir: str = "/"
    path: str = PATH
    files: Mapping[str, Path] = field(default_factory=dict)  # in the image -> on this machine


def images(pause: Path) -> tuple[Image, ...]:
    """The images of every node."""
    chart = yaml.safe_load((REPOSITORY / "helm/rightsizer/Chart.yaml").read_text())
    scripts = {"workspace/train.py": REPOSITORY / "examples" / "01-local" / "train.py"}
    idle = {"workspace/python": Path(__file__).with_name("idle.py")}
    return (
        Image(name=PAUSE, entrypoint=("/pause",), files={"pause": pause}),
        Image(
            name=f"ghcr.io/rightsizer/rightsizer:{chart['appVersion']}",
            entrypoint=("rightsizer",),
            user=f"{NON_ROOT}:{NON_ROOT}",
        ),
        # the user's training image: Python, torch, rightsizer's in-job agent, and the example's scripts
        Image(name="ghcr.io/acme/train:1.4", command=("python",), workdir="/workspace", files=scripts),
        # another version of it, for tests that change the image of a running plan
        Image(name="ghcr.io/acme/train:1.5", command=("python",), workdir="/workspace", files=scripts),
        # for tests that need a plan's pods, and no training
        Image(name="ghcr.io/acme/idle:1.0", path=f"/workspace:{PATH}", files=idle),
    )


def write_archive(path: Path, contents: tuple[Image, ...]) -> None:
    """All the images in one archive, as `docker save` writes it."""
    manifest = []
    with tarfile.open(path, "w") as archive:
        for image in contents:
            layer = _layer(image)
            layer_name = f"{hashlib.sha256(layer).hexdigest()}.tar"
            settings = _settings(image, layer)
            settings_name = f"{hashlib.sha256(settings).hexdigest()}.json"
            _add(archive, layer_name, layer)
            _add(archive, settings_name, settings)
            manifest.append({"Config": settings_name, "RepoTags": [image.name], "Layers": [layer_name]})
        _add(archive, "manifest.json", json.dumps(manifest).encode())


def _settings(image: Image, layer: bytes) -> bytes:
    document = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {
            "User": image.user,
            "WorkingDir": image.workdir,
            "Entrypoint": image.entrypoint,
            "Cmd": image.command,
            "Env": [f"PATH={image.path}"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    return json.dumps(document).encode()


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for folder in FOLDERS:
            _add_folder(layer, folder, 0o755)
        _add_folder(layer, "tmp", 0o1777)
        for name in INTO_USR:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            layer.addfile(link)
        _add(layer, "etc/passwd", PASSWORDS.encode())
        for inside, outside in image.files.items():
            _add(layer, inside, outside.read_bytes(), mode=outside.stat().st_mode & 0o755)
    return buffer.getvalue()


def _add_folder(archive: tarfile.TarFile, name: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    archive.addfile(entry)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
