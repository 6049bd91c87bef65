"""Packages use the public names of their dependencies: a private one may change in any release."""

import ast
from collections.abc import Iterator

import pytest
from tests.house.test_house import ROOT, package_folders


def private_imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Imports of private modules, or of private names of other packages, with their lines."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            ours = node.module.startswith("rightsizer")
            names = [node.module if ours else f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            documented = name.startswith("_typeshed.")  # for type checks only
            if not documented and any(
                part.startswith("_") and not part.startswith("__") for part in name.split(".")
            ):
                yield node.lineno, name


@pytest.mark.parametrize(
    "text", ["import kopf._cogs", "from kopf._cogs.structs import x", "from httpx import _client"]
)
def test_a_private_import_is_seen(text):
    assert list(private_imports(ast.parse(text)))


def test_no_package_imports_private_names_of_another():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for modules in package_folders().values()
        for path in modules
        if path.exists()
        for line, name in private_imports(ast.parse(path.read_text()))
    ]
    assert not found, found
