"""Write an OCI image layout: layers of folders, a configuration, a manifest, an index.

The same folders give the same bytes: entries are sorted, belong to root and carry no time.
"""

import contextlib
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_MEDIA = "application/vnd.oci.image"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A blob of files: its digest as stored, its digest unpacked, its size as stored."""

    digest: str
    diff_id: str
    size: int


class _Hashed(io.RawIOBase):
    """A writer that hashes and counts what passes through it."""

    def __init__(self, under: IO[bytes]) -> None:
        self.under, self.hash, self.size = under, hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.size += len(data)
        return self.under.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self.hash.hexdigest()}"


class Layout:
    """An OCI image layout in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True, exist_ok=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def layer(self, root: Path, *, compression: int) -> Layer:
        """A layer of everything below `root`."""
        fresh = self.blobs / "fresh"
        with fresh.open("wb") as file:
            stored = _Hashed(file)
            plain = write(stored, root, compression=compression)  # type: ignore[arg-type]
        fresh.rename(self.blob(stored.digest))
        return Layer(digest=stored.digest, diff_id=plain, size=stored.size)

    def blob(self, digest: str) -> Path:
        """The file of a digest."""
        return self.blobs / digest.removeprefix("sha256:")

    def image(
        self,
        name: str,
        layers: Sequence[Layer],
        *,
        architecture: str,
        config: Mapping[str, object],
        annotations: Mapping[str, str],
    ) -> str:
        """Configuration, manifest and index of an image of these layers; the manifest's digest."""
        settings = {
            "architecture": architecture,
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": self._blob(settings, f"{_MEDIA}.config.v1+json"),
            "layers": [
                {"mediaType": f"{_MEDIA}.layer.v1.tar+gzip", "digest": layer.digest, "size": layer.size}
                for layer in layers
            ],
            "annotations": dict(annotations),
        }
        described = self._blob(manifest, f"{_MEDIA}.manifest.v1+json")
        named = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        platform = {"architecture": architecture, "os": "linux"}
        index = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.index.v1+json",
            "manifests": [described | {"platform": platform, "annotations": named}],
        }
        (self.folder / "index.json").write_text(json.dumps(index))
        return str(described["digest"])

    def _blob(self, document: Mapping[str, object], media: str) -> dict[str, object]:
        data = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / digest).write_bytes(data)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}


def archive(layout: Path, file: Path) -> None:
    """The layout as one file, which `ctr images import`, podman, skopeo and docker load read."""
    with tarfile.open(file, "w") as tar:
        for path in _sorted(layout):
            tar.add(path, path.relative_to(layout), recursive=False, filter=_plain)


def write(into: IO[bytes], root: Path, *, compression: int, time_s: int = 0) -> str:
    """Everything below `root` as .tar.gz, each file with this time; the digest of the .tar."""
    with gzip.GzipFile("", "wb", compression, into, mtime=0) as packed:
        plain = _Hashed(packed)  # type: ignore[arg-type]
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_CHUNK) as tar:  # type: ignore[call-overload]
            for path in _sorted(root):
                entry = _plain(tar.gettarinfo(path, str(path.relative_to(root))))
                entry.mtime = time_s
                with path.open("rb") if entry.isreg() else contextlib.nullcontext() as data:
                    tar.addfile(entry, data)
    return plain.digest


def _sorted(root: Path) -> Iterator[Path]:
    return iter(sorted(root.rglob("*")))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    if entry.islnk():  # a second name of a file would depend on the order of a build before
        entry.type, entry.linkname = tarfile.REGTYPE, ""
    return entry
