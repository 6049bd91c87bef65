"""Identifiers of the Slurm executor, Python and Lua, say request and response."""

import io
import re
import tokenize
from pathlib import Path

import rightsizer_slurm

FOLDER = Path(rightsizer_slurm.__file__).parent
OTHER = re.compile(r"question|answer", re.IGNORECASE)
PROTOCOLS = {"sbatch/probe.py: answer"}
"""The probe implements a protocol of the launcher."""


def names(path: Path) -> set[str]:
    """The identifiers of a file."""
    text = path.read_text()
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return {token.string for token in tokens if token.type == tokenize.NAME}
    code = re.sub(r"--[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", "", text)
    return set(re.findall(r"[A-Za-z_]\w*", code))


def test_no_identifier_has_question_or_answer() -> None:
    files = [*FOLDER.rglob("*.py"), *FOLDER.rglob("*.lua")]
    found = {f"{path.relative_to(FOLDER)}: {name}" for path in files for name in {*names(path), path.stem}}
    assert {each for each in found if OTHER.search(each.partition(": ")[2])} == PROTOCOLS
