"""One public class name, one meaning, in all packages."""

import ast
import re
from pathlib import Path

from tests.house.test_house import ROOT, package_folders, tracked

PACKAGES = {"rightsizer", *(f"rightsizer_{name}" for name in (
    "api", "cli", "engine", "launch", "local", "operator", "slurm", "telemetry",
))}  # fmt: skip
SHARED = {  # name -> why several classes have it
    "Plan": "the face wraps the engine's value under its promised name",
    "NoPlan": "the face wraps the engine's value under its promised name",
    "RightsizerCallback": "each stack has its own, public for scripts",
}
TO_RENAME: set[str] = set()
"""Names that two classes still have; take a name off when only one class has it."""


def classes(module: Path) -> set[str]:
    """The public classes that a module defines at its top level."""
    body = ast.parse(module.read_text()).body
    return {node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}


def modules() -> list[Path]:
    return [path for folder in package_folders().values() for path in folder if path.exists()]


def test_all_packages_are_looked_at():
    assert {path.relative_to(ROOT).parts[1] for path in modules()} == PACKAGES


def test_a_public_class_name_means_one_class():
    """The lists are exact: a name that one class has comes off them."""
    by_name: dict[str, list[Path]] = {}
    for path in modules():
        for name in classes(path):
            by_name.setdefault(name, []).append(path.relative_to(ROOT))
    doubled = {name: paths for name, paths in by_name.items() if len(paths) > 1}
    unlisted = {name: [str(path) for path in doubled[name]] for name in doubled.keys() - SHARED - TO_RENAME}
    assert not unlisted, unlisted
    assert not (SHARED.keys() | TO_RENAME) - doubled.keys(), "only one class has these names now"


LOOKED_AT = {"sizing", "crds", "cli", "python"}
"""Layers whose public names must be used in another file."""


def public_names(module: Path) -> set[str]:
    """The public functions and constants that a module defines at its top level."""
    body = ast.parse(module.read_text()).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    constants = {target.id for target in targets if isinstance(target, ast.Name) and target.id.isupper()}
    return {name for name in functions | constants if not name.startswith("_")}


def test_a_public_name_is_used_in_another_file():
    """A name that only its own module uses is private: public names are those that others rely on."""
    users: dict[str, int] = {}
    for path in tracked(".py"):
        for word in set(re.findall(r"[A-Za-z]\w*", path.read_text())) if path.exists() else ():
            users[word] = users.get(word, 0) + 1
    own = [path for path in modules() if path.relative_to(ROOT).parts[0] in LOOKED_AT]
    alone = {
        f"{path.relative_to(ROOT)}: {name}" for path in own for name in public_names(path) if users[name] < 2
    }
    assert not alone
