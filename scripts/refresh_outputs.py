"""Rewrites the outputs of commands that README.md and docs/ show: refresh_outputs.py [--check] [FILE ...].

Only commands that need no cluster, no training and no file of the reader's run here. A shown output may leave
lines out (`...`): each part stays as long as its first and last line are apart, found by their first words.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PURE = re.compile(
    r"    \$ (rightsizer (plan|explain|estimate|simulate|models|gpus|nodes)|python scripts/\w+\.py)\b"
)
NEEDS_FILES = "--runs"
INDENT, LEFT_OUT = "    ", "..."
ENVIRONMENT = {"COLUMNS": "104", "RIGHTSIZER_CALIBRATION": "", "PYTHONIOENCODING": "utf-8"}


def refreshed(lines: Sequence[str]) -> Iterator[str]:
    """The lines of a document with the outputs of today."""
    at = 0
    while at < len(lines):
        head = at
        while at < len(lines) and lines[at].endswith("\\"):
            at += 1
        at += 1
        yield from lines[head:at]
        if PURE.match(lines[head]) and NEEDS_FILES not in lines[head]:
            shown = list(takewhile(_is_output, lines[at:]))
            while shown and not shown[-1]:
                shown.pop()
            command = "\n".join(lines[head:at]).partition("$")[2]
            yield from _shortened(shown, _output(command)) if shown else ()
            at += len(shown)


def _is_output(line: str) -> bool:
    return not line or (line.startswith(INDENT) and not line.startswith(INDENT + "$ "))


def _output(command: str) -> list[str]:
    path = f"{REPOSITORY / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **ENVIRONMENT, "PATH": path},
    )
    assert done.stdout, f"{command}: {done.stderr}"
    return [(INDENT + line).rstrip() for line in done.stdout.rstrip("\n").splitlines()]


def _shortened(shown: Sequence[str], output: Sequence[str]) -> Iterator[str]:
    """The output without the lines that the shown one leaves out."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line.strip() == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    begin = 0
    for number, part in enumerate(parts):
        if number:
            yield INDENT + LEFT_OUT
        if not part:
            continue
        begin = _place(part[0], output, begin) if number else 0
        end = _place(part[-1], output, begin + len(part) - 1) if len(parts) > 1 else len(output) - 1
        yield from output[begin : end + 1]
        begin = end + 1


def _place(line: str, output: Sequence[str], near: int) -> int:
    """Where the output has a line with the first word of this one, as near as can be."""
    word = line.split(maxsplit=1)[:1]
    places = [i for i, each in enumerate(output) if each.split(maxsplit=1)[:1] == word]
    return min(places, key=lambda i: abs(i - near), default=min(near, len(output) - 1))


def main(arguments: Sequence[str]) -> int:
    """Rewrite the files; with --check, 1 where a file is not what this would write."""
    check = "--check" in arguments
    files = [Path(each) for each in arguments if each != "--check"]
    paths = files or [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(_rewritten, paths))
    stale = [(path, text) for path, text in zip(paths, texts, strict=True) if text != path.read_text()]
    for path, text in stale:
        sys.stdout.write(f"{path.name}{': out of date; run `make outputs`' if check else ''}\n")
        if not check:
            path.write_text(text)
    return int(check and bool(stale))


def _rewritten(path: Path) -> str:
    return "\n".join(refreshed(path.read_text().split("\n")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
