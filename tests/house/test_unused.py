"""A public function has a user outside its module; else it is private, or goes."""

import ast
import re
import subprocess

from tests.house.test_house import ROOT

FOLDERS = ("crds", "launch", "local", "sizing", "telemetry")


def tracked() -> dict[str, str]:
    """The text of every tracked Python file, by path."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True)
    return {path: (ROOT / path).read_text() for path in listed.stdout.split() if (ROOT / path).exists()}


def test_every_public_function_has_a_user_outside_its_module():
    texts = tracked()
    words = {path: set(re.findall(r"\w+", text)) for path, text in texts.items()}
    unused = [
        f"{path}: {node.name}"
        for path, text in texts.items()
        if path.split("/")[0] in FOLDERS
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        if not any(node.name in names for other, names in words.items() if other != path)
    ]
    assert not unused, unused
