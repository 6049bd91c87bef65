"""`python -m deploy.release.notes 1.2.3`: that release's part of CHANGELOG.md."""

import re
import sys
from pathlib import Path

from deploy.images.errors import BuildError

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def notes(text: str, version: str) -> str:
    """The text below `## VERSION (YYYY-MM-DD)`. BuildError without it."""
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n(.*?)(?=^## |\Z)"
    found = re.search(heading, text, flags=re.MULTILINE | re.DOTALL)
    if not found or not found[1].strip():
        raise BuildError(f"CHANGELOG.md has no text below a heading `## {version} (YYYY-MM-DD)`")
    return found[1].strip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(notes(CHANGELOG.read_text(), sys.argv[1]))
