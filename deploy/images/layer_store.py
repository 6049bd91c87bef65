"""Cached layers, keyed by their inputs: an unchanged lock is neither downloaded nor packed again."""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.images import wheels
from deploy.images.oci import Layer, Layout

_COMPRESSION = 3  # gzip's; a worker's layers are gigabytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A layer, and the Python packages in it."""

    layer: Layer
    python: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStore:
    """Layers of one layout, kept in `folder` for other builds; `key` is what all of them depend on."""

    folder: Path
    layout: Layout
    key: str

    def layer(self, made_from: str, fill: Callable[[Path], None]) -> Part:
        """The layer of what `fill` writes below a folder; one made from nothing is never kept."""
        kept = self.folder / "layers" / self._name(made_from)
        if made_from and kept.is_dir():
            return self._copied(kept)
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            root = Path(folder) / "root"
            root.mkdir()
            fill(root)
            layer = self.layout.layer(root, compression=_COMPRESSION)
            part = Part(layer=layer, python=tuple(wheels.installed(root)))
            if made_from:
                self._keep(part, Path(folder) / "kept", kept)
        return part

    def _name(self, made_from: str) -> str:
        """Builders that differ make layers that differ."""
        source = "".join(file.read_text() for file in sorted(Path(__file__).parent.glob("*.py")))
        return hashlib.sha256(f"{self.key}\0{made_from}\0{source}".encode()).hexdigest()

    def _keep(self, part: Part, fresh: Path, kept: Path) -> None:
        fresh.mkdir()
        shutil.copy(self.layout.blob(part.layer.digest), fresh / "blob")
        (fresh / "part.json").write_text(json.dumps(asdict(part)))
        kept.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another build has just kept the same layer
            fresh.rename(kept)

    def _copied(self, kept: Path) -> Part:
        document = json.loads((kept / "part.json").read_text())
        part = Part(layer=Layer(**document["layer"]), python=tuple(map(tuple, document["python"])))
        shutil.copy(kept / "blob", self.layout.blob(part.layer.digest))
        return part
