"""A reason is a value: no code reads it back out of a sentence."""

import ast

import pytest
from tests.house.test_house import ROOT, package_folders

_READS = {"startswith", "removeprefix", "partition", "split", "index", "find"}
MODULES = [path for folder in package_folders().values() for path in folder if path.exists()]


def parsed_sentences(source: str) -> list[int]:
    """The lines that look for the prefix of a `Missing` in a text."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS
        for text in node.args
        if isinstance(text, ast.Constant) and str(text.value).startswith("unknown")
    ]


@pytest.mark.parametrize(
    "source", ["a.removeprefix('unknown: ')", "not r.get('reason').startswith('unknown')"]
)
def test_a_parsed_sentence_is_found(source):
    assert parsed_sentences(source) == [1]


def test_no_reason_is_parsed_from_a_sentence():
    found = {str(path.relative_to(ROOT)): parsed_sentences(path.read_text()) for path in MODULES}
    assert not {path: lines for path, lines in found.items() if lines}
