"""One public class name, one meaning, in all packages."""

import ast
from pathlib import Path

from tests.house.test_house import ROOT, package_folders

PACKAGES = {"rightsizer", *(f"rightsizer_{name}" for name in (
    "api", "cli", "engine", "launch", "local", "operator", "slurm", "telemetry",
))}  # fmt: skip
SHARED = {  # name -> why several classes have it
    "Plan": "the face wraps the engine's value under its promised name",
    "NoPlan": "the face wraps the engine's value under its promised name",
    "RightsizerCallback": "each stack has its own, public for scripts",
}
TO_RENAME = {  # take a name off the list when only one class has it
    # the engine
    "Case",
    "Group",
    # the CRDs and the command line
    "Status",
    # launch and telemetry
    "Reading",
    "Rule",
    # the command line
    "Flags",
    "Link",
}


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
