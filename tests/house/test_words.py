"""Words of the status have one definition; packages use its names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.house.test_house import ROOT, package_folders

from rightsizer_api.state import ConditionType, RunningReason, State

WORDS = {str(word) for vocabulary in (State, ConditionType, RunningReason) for word in vocabulary}


def modules() -> list[Path]:
    return [path for folder in package_folders().values() for path in folder if path.exists()]


def quoted(tree: ast.AST) -> Iterator[ast.Constant]:
    """The literals of a module, without annotations, `__all__` and the members of enumerations."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef) and any("Enum" in ast.unparse(base) for base in child.bases):
            continue
        if isinstance(child, ast.Assign) and "__all__" in map(ast.unparse, child.targets):
            continue
        if child in (getattr(tree, "annotation", None), getattr(tree, "returns", None)):
            continue
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child
        yield from quoted(child)


@pytest.mark.parametrize("text", ['x = "Running"', 'f(reason="Failed")', 'x: str = "Queued"'])
def test_a_word_of_the_status_is_seen(text):
    assert {literal.value for literal in quoted(ast.parse(text))} <= WORDS


def test_words_of_the_status_are_written_once():
    found = [
        f"{path.relative_to(ROOT)}:{literal.lineno}: {literal.value}"
        for path in modules()
        for literal in quoted(ast.parse(path.read_text()))
        if literal.value in WORDS
    ]
    assert not found, found
