"""Rewrites the command outputs in README.md and docs/: refresh_outputs.py [--check] [FILE ...].

Only commands that need no cluster, no training and no file of the reader's are run. A shown output may leave
lines out (`...`): each part keeps its length, and is found by the first words of its first and last line.
A few processes run all commands, because an import costs as much as a plan.
"""

import contextlib
import io
import multiprocessing
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import takewhile
from pathlib import Path

from rightsizer_cli.main import execute

REPOSITORY = Path(__file__).resolve().parents[1]
PURE = re.compile(
    r"    \$ (rightsizer (plan|explain|estimate|simulate|models|gpus|nodes)|python scripts/\w+\.py)\b"
)
NEEDS_FILES = "--runs"
INDENT, LEFT_OUT = "    ", "..."
ENVIRONMENT = {"COLUMNS": "104", "RIGHTSIZER_CALIBRATION": ""}
FIRST_LINES = re.compile(r"(.*?)(?:\s\| head -(\d+))?")
PICTURES = {"rightsizer simulate": Path("docs/images/simulate.svg")}
"""What `--plot` of a shown command draws: another 9 s if it ran for the picture alone."""


def shown_commands(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Each command whose output a document shows: its words, the line after it, its output there."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        head = at
        while at < len(lines) and lines[at].endswith("\\"):
            at += 1
        at += 1
        if PURE.match(lines[head]) and NEEDS_FILES not in lines[head]:
            shown = list(takewhile(_is_output, lines[at:]))
            while shown and not shown[-1]:
                shown.pop()
            command = " ".join(line.rstrip("\\").strip() for line in lines[head:at])
            if shown:
                yield command.removeprefix("$ "), at, shown


def refreshed(text: str, outputs: Mapping[str, Sequence[str]]) -> str:
    """A document with these outputs of its commands."""
    lines, done = text.split("\n"), 0
    new: list[str] = []
    for command, at, shown in shown_commands(text):
        new += [*lines[done:at], *_shortened(shown, outputs[command])]
        done = at + len(shown)
    return "\n".join([*new, *lines[done:]])


def _is_output(line: str) -> bool:
    return not line or (line.startswith(INDENT) and not line.startswith(INDENT + "$ "))


def outputs_of(commands: Iterable[str]) -> tuple[dict[str, list[str]], dict[Path, bytes]]:
    """The output of each command, as lines of a document, and the pictures that they draw."""
    wanted = list(dict.fromkeys(commands))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("fork"), _prepare) as pool:
        results = dict(zip(wanted, pool.map(result_of, wanted), strict=True))
    pictures = {PICTURES[command]: drawn for command, (_, drawn) in results.items() if drawn}
    return {command: lines for command, (lines, _) in results.items()}, pictures


def _prepare() -> None:
    os.environ.update(ENVIRONMENT)
    os.chdir(REPOSITORY)


def result_of(command: str) -> tuple[list[str], bytes]:
    """The lines that a command prints, and its picture."""
    matched = FIRST_LINES.fullmatch(command)
    assert matched is not None, command
    program, *arguments = shlex.split(matched[1])
    stdout = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(stdout):
        picture = Path(folder, "drawn.svg")
        if program == "rightsizer":
            execute([*arguments, *(["--plot", str(picture)] if command in PICTURES else [])])
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        drawn = picture.read_bytes() if picture.exists() else b""
    lines = stdout.getvalue().rstrip("\n").splitlines()
    assert lines, command
    return [(INDENT + line).rstrip() for line in lines[: int(matched[2]) if matched[2] else None]], drawn


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
    """The index of the nearest output line that begins with the same word."""
    word = line.split(maxsplit=1)[:1]
    places = [i for i, each in enumerate(output) if each.split(maxsplit=1)[:1] == word]
    return min(places, key=lambda i: abs(i - near), default=min(near, len(output) - 1))


def main(arguments: Sequence[str]) -> int:
    """Rewrite the files; with --check, 1 where a file is not what this would write."""
    check = "--check" in arguments
    files = [Path(each) for each in arguments if each != "--check"]
    paths = files or [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
    texts = {path: path.read_text() for path in paths}
    outputs, pictures = outputs_of(command for text in texts.values() for command, *_ in shown_commands(text))
    new = {path: refreshed(text, outputs).encode() for path, text in texts.items()}
    new |= {REPOSITORY / path: drawn for path, drawn in pictures.items()}
    stale = [path for path, content in new.items() if not path.is_file() or path.read_bytes() != content]
    for path in stale:
        sys.stdout.write(f"{path.name}{': out of date; run `make generate`' if check else ''}\n")
        if not check:
            path.write_bytes(new[path])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
