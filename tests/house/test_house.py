"""Rules of the house that no linter knows."""

import ast
import importlib
import operator
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACES = ("rightsizer", "rightsizer_api")
MODULE_FACES = (  # modules that scripts and other packages import as one
    "launch/rightsizer_launch/agent.py",
    "launch/rightsizer_launch/integrations/hf.py",
    "sizing/rightsizer_engine/catalog/lookup.py",
)
MAX_LINES = 400
MAX_MODULES = 20
SMALL_BYTES = 1000
MAX_RESULTS_BYTES = 500_000
LONG_FILES: dict[str, str] = {}  # path -> the reason why it may be longer


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return [ROOT / name for name in listed if not suffixes or name.endswith(suffixes)]


def test_stdlib_operator_is_not_shadowed():
    assert Path(operator.__file__).parent == Path(sysconfig.get_path("stdlib"))


def test_folders_are_not_packages():
    paths = [p.relative_to(ROOT).parts for p in tracked("__init__.py")]
    assert not [path for path in paths if len(path) == 2 or path[0] == "tests"]


def offered(package: str) -> set[str]:
    """Names that a package's __init__ defines or takes from its modules, type-checking imports too."""
    tree = ast.parse(Path(importlib.import_module(package).__file__ or "").read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    taken = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package)
        for alias in node.names
    }
    return {name for name in defined | taken if not name.startswith("_")}


@pytest.mark.parametrize("package", FACES)
def test_public_names_equal_all(package):
    module = importlib.import_module(package)
    constants = {name for name in module.__all__ if name in vars(module) and name.isupper()}
    assert set(module.__all__) - constants == offered(package)
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def test_only_faces_list_their_names():
    """A name without an underscore is public; a list of them repeats each name."""
    listed = {
        str(path.relative_to(ROOT))
        for path in tracked(".py")
        if path.exists() and re.search(r"^__all__\b", path.read_text(), re.MULTILINE)
    }
    assert listed - set(MODULE_FACES) == {"crds/rightsizer_api/__init__.py", "python/rightsizer/__init__.py"}


def test_no_file_is_longer_than_a_person_reads():
    code = [p for p in tracked(".py", ".sh") if p.exists()]
    long = {str(p.relative_to(ROOT)) for p in code if len(p.read_text().splitlines()) > MAX_LINES}
    assert long == set(LONG_FILES)


def package_folders() -> dict[Path, list[Path]]:
    """The modules of each folder of all packages."""
    folders: dict[Path, list[Path]] = {}
    for path in tracked(".py"):
        if len(path.relative_to(ROOT).parts) > 2 and path.relative_to(ROOT).parts[1].startswith("rightsizer"):
            folders.setdefault(path.parent, []).append(path)
    return folders


def test_no_folder_holds_more_modules_than_a_person_overlooks():
    crowded = {
        str(folder.relative_to(ROOT)): len(modules)
        for folder, modules in package_folders().items()
        if len(modules) - 1 > MAX_MODULES
    }
    assert not crowded


def test_every_package_folder_states_its_purpose():
    inits = [folder / "__init__.py" for folder in package_folders()]
    assert not [path for path in inits if not ast.get_docstring(ast.parse(path.read_text()))]


def test_tests_mirror_the_packages():
    packages = {folder.relative_to(ROOT).parts[0]: folder for folder in package_folders()}
    roots = {layer: ROOT / layer / folder.relative_to(ROOT).parts[1] for layer, folder in packages.items()}
    strays = [
        folder
        for folder in {
            path.parent.relative_to(ROOT / "tests") for path in tracked(".py") if "tests" in path.parts
        }
        if folder.parts
        and folder.parts[0] not in {"e2e", "house"}
        and not roots[folder.parts[0]].joinpath(*folder.parts[1:]).is_dir()
    ]
    assert not strays


def test_results_are_small():
    large = {p.name: p.stat().st_size for p in tracked() if p.parent == ROOT / "bench/results" and p.exists()}
    assert sum(large.values()) < MAX_RESULTS_BYTES, large


def test_no_two_files_hold_the_same():
    by_content: dict[bytes, list[str]] = {}
    by_hand = [path for path in tracked() if path.parent != ROOT / "docs/try"]  # generated, style and all
    for path in by_hand:
        if path.is_file() and not path.is_symlink() and path.stat().st_size > SMALL_BYTES:
            by_content.setdefault(path.read_bytes(), []).append(str(path.relative_to(ROOT)))
    assert not [names for names in by_content.values() if len(names) > 1]


def test_no_file_names_a_registry_or_this_machine():
    places = ("/wo" + "rk/", "/ro" + "ot/", "pypi" + ".org", "pythonhosted" + ".org", "proxy.golang" + ".org")
    found = [
        f"{p.relative_to(ROOT)}: {place}"
        for p in tracked()
        if p.is_file() and p.suffix not in {".gz", ".png"}
        for place in places
        if place in p.read_text(errors="ignore")
    ]
    assert not found


def test_code_is_ascii():
    assert not [
        p for p in tracked(".py", ".sh", ".yaml", ".toml") if p.exists() and not p.read_text().isascii()
    ]


def test_a_duration_becomes_a_date_in_one_place():
    """Estimates have any length, and dates end: rightsizer_api.quantities.later. The others are time-outs."""
    known = {"quantities.py", "rendezvous.py", "signed_rendezvous.py", "cpu_probe.py"}
    modules = [path for folder in package_folders().values() for path in folder]
    assert {path.name for path in modules if re.search(r"timedelta\(", path.read_text())} <= known


def test_layer_contracts_hold():
    linter = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([linter, "--no-cache"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_markdown_link_leads_somewhere():
    dead = [
        f"{p.relative_to(ROOT)}: {target}"
        for p in tracked(".md")
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", p.read_text())
        if not target.startswith(("http", "mailto")) and not (p.parent / target).exists()
    ]
    assert not dead


@pytest.mark.slow
def test_every_bench_imports():
    """No type check reads them: a name that is gone shows when somebody measures."""
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in tracked(".py")
        if p.is_relative_to(ROOT / "bench")
    ]
    assert modules
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    done = subprocess.run(
        [sys.executable, "-c", code, *modules], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
