"""Words of the status have one definition; packages use its names."""

import ast
import re
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


CAMEL = re.compile(r"[a-z][a-z0-9]*(?:[A-Z][A-Za-z0-9]*)+")
EDGES = ("values", "manifests", "kubectl")
"""Folders of the operator that know the API's documents; kubectl prints them."""


def look_ups(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Look-ups of camelCase keys, `x["key"]` and `x.get("key")`, with their lines."""
    for node in ast.walk(tree):
        key: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = node.args[0] if node.func.attr in {"get", "pop", "setdefault"} else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and CAMEL.fullmatch(key.value):
            yield node.lineno, key.value


@pytest.mark.parametrize("text", ['x["jobName"]', 'x.get("jobName")', 'x.pop("jobName", 1)'])
def test_a_look_up_in_a_document_is_seen(text):
    assert list(look_ups(ast.parse(text))) == [(1, "jobName")]


def test_the_operator_parses_documents_at_its_edge():
    """Decisions work on parsed values: a misspelt key is then an error of the type check."""
    package = ROOT / "operator/rightsizer_operator"
    found = [
        f"{path.relative_to(ROOT)}:{line}: {key}"
        for path in modules()
        if path.is_relative_to(package) and path.relative_to(package).parts[0] not in EDGES
        for line, key in look_ups(ast.parse(path.read_text()))
    ]
    assert not found, found
