"""The tests' Slurm runs at the time settings that ship; a test with another value gives its reason."""

import ast
import configparser
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "slurm/rightsizer_slurm/data/rightsizer.conf"
TIMES = ("timeout_s", "cooldown_s", "hold_after_s", "refresh_s")
OTHERS = {"mode", "users", "socket", "state", "runs"}
"""What differs on the tests' Slurm: settings.py has the reason of the first two."""
SUITES = ("slurm", "slurm_jobs", "loop", "install")


PRINTED = """
import sys
from pathlib import Path
from place import Place
from settings import site_text
print(site_text(Place(name="any", plugin=True), Path(sys.argv[1]).read_text()))
"""


def top(text: str) -> dict[str, str]:
    """The settings above the first section."""
    reader = configparser.ConfigParser(
        interpolation=None, inline_comment_prefixes="#", comment_prefixes="#", delimiters="="
    )
    reader.read_string(f"[top]\n{text}")
    return dict(reader["top"])


def test_the_tests_slurm_has_the_shipped_settings() -> None:
    argv = [sys.executable, "-c", PRINTED, SHIPPED]
    done = subprocess.run(argv, cwd=ROOT / "tests/e2e/slurm", check=True, capture_output=True, text=True)
    ours, shipped = top(done.stdout), top(SHIPPED.read_text())
    assert {key for key in ours if ours[key] != shipped.get(key)} == OTHERS
    assert set(TIMES) <= set(shipped)


def other_values(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls that set one of TIMES on a site of the tests' Slurm."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            names = {keyword.arg for keyword in call.keywords}
            if call.func.attr in {"settings", "blind"} and names & {*TIMES, None}:
                yield call


@pytest.mark.parametrize(
    "path", [path for suite in SUITES for path in sorted((ROOT / "tests/e2e" / suite).glob("*.py"))], ids=str
)
def test_another_time_in_a_suite_has_its_reason_beside_it(path: Path) -> None:
    text = path.read_text()
    for call in other_values(ast.parse(text)):
        if any(keyword.arg is None for keyword in call.keywords) and path.name == "conftest.py":
            continue  # Site.blind passes its own on
        reasons = [keyword.value for keyword in call.keywords if keyword.arg == "why"]
        assert reasons, f"{path.name}:{call.lineno}: say why=... this value is not the shipped one"
        assert all(isinstance(each, ast.Constant) and len(str(each.value)) > 20 for each in reasons)
    written = [key for key in TIMES if f"{key} = " in text]
    assert not written, f"{path}: {written} belong into Site.settings(...)"
