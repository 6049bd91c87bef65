"""The reference tables: published runs and measurements, by the hashes of bench/reference.sha256.

    python -m bench.reference [FOLDER] [--record]

They are not in the repository. FOLDER holds them (default: RIGHTSIZER_REFERENCE, else ../shared/reference).
With RIGHTSIZER_REFERENCE_URL, the address of a release's files, those that FOLDER lacks are downloaded to it.
No release of them is published yet, so the address is empty. A missing or changed file ends a fit or a bench,
with the remedy. --record writes the hashes anew, after the tables were meant to change.
"""

import argparse
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import httpx

MANIFEST = Path(__file__).with_name("reference.sha256")
FOLDER = "RIGHTSIZER_REFERENCE"
URL = "RIGHTSIZER_REFERENCE_URL"
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "reference"
MOST_BYTES = 64 * 2**20
"""No table is near it: a download past it is not what was released."""
CONNECT_S = 30.0


def stated(manifest: Path = MANIFEST) -> dict[str, str]:
    """Hashes by name, as `sha256sum` writes them."""
    lines = (line.split("  ", maxsplit=1) for line in manifest.read_text().splitlines() if line)
    return {name: digest for digest, name in lines}


def ready(folder: Path, hashes: Mapping[str, str], url: str = "") -> Path:
    """The folder, complete and unchanged; else one line that says what to do, and exit code 1."""
    for name, digest in hashes.items():
        path = folder / name
        if not path.is_file():
            if not url:
                raise SystemExit(
                    f"error: {path}: missing; set {FOLDER} to the folder of the reference tables, "
                    f"or {URL} to the address of their release"
                )
            _download(f"{url.rstrip('/')}/{name}", path, digest)
        elif digest_of(path.read_bytes()) != digest:
            raise SystemExit(
                f"error: {path}: differs from {MANIFEST.name}; put the released file back, "
                "or record the change: python -m bench.reference --record"
            )
    return folder


def digest_of(content: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(content).hexdigest()


def reference(argument: str | None = None) -> Path:
    """The folder of reference tables: one that is named is taken as it is, the usual one is checked."""
    if argument:
        return Path(argument)
    return ready(Path(os.environ.get(FOLDER) or DEFAULT), stated(), os.environ.get(URL, ""))


def _download(address: str, path: Path, digest: str) -> None:
    content = bytearray()
    try:
        with httpx.stream("GET", address, timeout=CONNECT_S, follow_redirects=True) as answer:
            answer.raise_for_status()
            for part in answer.iter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    raise SystemExit(
                        f"error: {address}: more than {MOST_BYTES} bytes; is it the release's address?"
                    )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SystemExit(f"error: {address}: {error}; is {URL} the address of a release?") from None
    if digest_of(content) != digest:
        raise SystemExit(
            f"error: {address}: differs from {MANIFEST.name}; is {URL} of this version's release?"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def record(folder: Path, manifest: Path = MANIFEST) -> None:
    """Write the manifest anew from a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{digest_of(path.read_bytes())}  {path.relative_to(folder)}\n" for path in files]
    manifest.write_text("".join(lines))


def main() -> None:
    """Check the folder, or record it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", help="where the tables are, or come to be")
    parser.add_argument("--record", action="store_true", help="write the hashes of what is there")
    given = parser.parse_args()
    folder = Path(given.folder or os.environ.get(FOLDER) or DEFAULT)
    if given.record:
        record(folder)
    else:
        ready(folder, stated(), os.environ.get(URL, ""))
    print(f"{folder}: {len(stated())} files, as {MANIFEST.name} says")


if __name__ == "__main__":
    main()
