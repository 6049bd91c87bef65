"""Docstrings and test names are plain: a noun phrase or a verb, with no riddle for a subject."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.test_house import ROOT, tracked

OPENINGS = re.compile(r"(?:What|How|Who|Whom|Whose|Where|Nothing|Nobody|All that)\b")
"""A docstring that begins so names its subject last, if at all."""
RIDDLES = re.compile(r"\b(?:nobody|as ever|by its word|whoever)\b", re.IGNORECASE)
PERSONS = re.compile(
    r"_(?:nobody|told|tells|said|says|asked|asks|goes_on|go_on|whoever|shall|as_it_is|as_it_was)(?=_|$)"
)
"""A program is no person: it prints, requests, reports, continues."""
TERMS = {"test_the_user_nobody_is_a_user"}
WORTH_PARSING = re.compile(
    rf"\"\"\"{OPENINGS.pattern}|{RIDDLES.pattern}|def test\w*{PERSONS.pattern}", re.IGNORECASE
)
"""In a module without these words nothing can be found: parsing all modules takes seconds."""


def documented(path: Path) -> Iterator[tuple[str, str]]:
    """Names in a module, and the first sentences of their docstrings."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if WORTH_PARSING.search(text) else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = re.split(r"(?<=[.:?])\s|\n\n", ast.get_docstring(node) or "")[0]
            yield getattr(node, "name", "module"), first


def riddles(paths: list[Path]) -> list[str]:
    """The docstrings and test names that are not plain."""
    return [
        f"{path.relative_to(ROOT)}: {name}: {first}"
        for path in paths
        for name, first in documented(path)
        if OPENINGS.match(first)
        or RIDDLES.search(first)
        or (name.startswith("test_") and name not in TERMS and PERSONS.search(name))
    ]


def test_docstrings_and_test_names_are_plain():
    assert not riddles(tracked(".py"))
