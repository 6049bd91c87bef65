"""A program of a user that reads all eight names passes mypy's strict check, and a wrong one does not."""

import subprocess
import sys
from pathlib import Path

import pytest

import rightsizer

CONSUMER = Path(__file__).with_name("consumer.py").read_text()
WRONG = {
    "keyword": "rightsizer.plan(modle='gpt2')",
    "type of a keyword": "rightsizer.plan(gpus='8')",
    "choice": "rightsizer.plan(objective='speed')",
    "field": "rightsizer.estimate_layout(model='gpt2', gpu='H100').step.mfus",
    "result that was not checked": "rightsizer.plan(model='gpt2').gpus",
}


def checked(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_program_reads_every_name():
    assert [name for name in rightsizer.__all__ if f"rightsizer.{name}" not in CONSUMER] == []


@pytest.mark.slow
def test_a_users_program_passes_the_strict_check(tmp_path):
    done = checked(tmp_path, CONSUMER)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = checked(tmp_path, "import rightsizer\n" + "\n".join(WRONG.values()))
    assert [f"program.py:{line}" in wrong.stdout for line, _ in enumerate(WRONG, start=2)] == [True] * len(
        WRONG
    )
