"""Shipped packages are permissive, and imported ones are declared."""

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # deploy is run from the repository, not installed
from deploy.images import licences
from deploy.images.build import images
from deploy.images.errors import BuildError
from deploy.release import linux

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHIPPED = (linux.LOCK, images()["operator"].lock)
WORKERS = tuple(image.lock for image in images().values())
"""Not all installed here: `make release-dry-run` reads the licences of what an image holds."""
BY_STACK = {"accelerate", "deepspeed", "lightning", "pytorch_lightning", "transformers"}
"""Imported by integrations, which run where the training script has imported them before."""
INSTALLED_AS = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py", "pythonjsonlogger": "python-json-logger"}


def names(lock: Path) -> set[str]:
    """The packages of a lock that are installed on Linux."""
    lines = re.findall(r"^([\w.-]+)==(.*)$", lock.read_text(), flags=re.MULTILINE)
    return {name for name, rest in lines if "sys_platform == 'win32'" not in rest}


@pytest.mark.parametrize("lock", SHIPPED, ids=lambda lock: lock.name)
def test_every_package_that_we_ship_has_a_licence_that_allows_it(lock):
    assert not licences.refused(metadata.distribution(name) for name in sorted(names(lock)))


def test_every_exception_is_of_a_package_that_we_ship():
    shipped = {name for lock in (*SHIPPED, *WORKERS) for name in names(lock)}
    assert not [each for each in licences.EXCEPTIONS if not any(fnmatch(name, each) for name in shipped)]


@pytest.mark.parametrize(
    ("headers", "licence"),
    [
        ("License: GPL2+\nClassifier: License :: OSI Approved :: GNU General Public License (GPL)", "GPL2+"),
        ("License-Expression: GPL-2.0-or-later", "GPL-2.0-or-later"),
        ("License-Expression: MIT AND (Apache-2.0 OR LGPL-3.0-only)", "LGPL-3.0-only"),
        ("License: MIT\nClassifier: License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)", "MPL"),
        ("License: Copyright (c) us\n        All rights reserved", "no licence stated"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved", "no licence stated"),
        ("Summary: x", "no licence stated"),
    ],
    ids=lambda value: value.splitlines()[0][:30],
)
def test_a_package_with_a_copyleft_or_unreadable_licence_is_refused(tmp_path, headers, licence):
    install(tmp_path, headers)
    with pytest.raises(BuildError, match=re.escape(licence)):
        licences.check(tmp_path)


@pytest.mark.parametrize(
    "headers",
    [
        "License-Expression: BSD-3-Clause AND (MIT OR Apache-2.0)",
        "License: BSD 3-Clause License\n        Copyright (c) us",
        "Classifier: License :: OSI Approved :: MIT License",
    ],
)
def test_a_permissive_licence_is_read_in_each_form(tmp_path, headers):
    install(tmp_path, headers)
    licences.check(tmp_path)


def install(site: Path, headers: str) -> None:
    (site / "odd-1.dist-info").mkdir()
    (site / "odd-1.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.4\nName: odd\nVersion: 1\n{headers}\n"
    )


def imported() -> dict[str, str]:
    """Each module from elsewhere that the packages import, and a file that does."""
    found = {}
    for path in sorted(path for folder in ROOT.glob("*/rightsizer*") for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found |= {module.partition(".")[0]: str(path.relative_to(ROOT)) for module in modules}
    known = {*sys.stdlib_module_names, "_typeshed", *BY_STACK}
    return {name: at for name, at in found.items() if name not in known and not name.startswith("rightsizer")}


def test_every_package_that_is_imported_is_declared():
    asked = [
        *PROJECT["dependencies"],
        *(one for some in PROJECT["optional-dependencies"].values() for one in some),
    ]
    declared = {licences.normal(re.split(r"[^\w.-]", each)[0]) for each in asked}
    of_module = {name: licences.normal(INSTALLED_AS.get(name, name)) for name in imported()}
    assert not {name: imported()[name] for name, package in of_module.items() if package not in declared}
