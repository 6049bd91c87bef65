"""The Helm chart as one file, with the version of the wheel. The same files give the same bytes."""

import gzip
import io
import re
import tarfile
from pathlib import Path

_DEVELOPMENT = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.?(a|b|rc|dev)(\d+))?")
_STAGES = {"a": "alpha", "b": "beta"}


def semantic(version: str) -> str:
    """A Python version as Helm writes versions: 0.2.0rc1 is 0.2.0-rc.1. ValueError for other forms."""
    found = _DEVELOPMENT.fullmatch(version)
    if not found:
        raise ValueError(f"{version!r}: a release is N.N.N, with aN, bN, rcN or .devN behind it")
    major, minor, patch, stage, number = found.groups()
    release = f"{major}.{minor}.{patch or 0}"
    return f"{release}-{_STAGES.get(stage, stage)}.{number}" if stage else release


def package(chart: Path, version: str, out: Path) -> Path:
    """The chart as `helm package` writes it; its operator is the image of this version."""
    file = out / f"{chart.name}-{semantic(version)}.tgz"
    with (
        file.open("wb") as stored,
        gzip.GzipFile("", "wb", 9, stored, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            data = path.read_bytes()
            if path.name == "Chart.yaml":
                data = _stamped(data.decode(), version).encode()
            entry = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart)}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return file


def _stamped(text: str, version: str) -> str:
    """Chart.yaml with this version."""
    for key, value in (("version", semantic(version)), ("appVersion", f'"{version}"')):
        text, count = re.subn(rf"^{key}: .*$", f"{key}: {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    return text
