"""Jobs of `rightsizer sbatch` on the real Slurm of the tests."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
from training import Check, Training


@pytest.fixture
def training(slurm: Any, tmp_path: Path) -> Iterator[Training]:
    """A training; its jobs are cancelled at the end."""
    shutil.copy(Path(__file__).parents[1] / "paced_train.py", tmp_path)
    run = Training(slurm=slurm, folder=tmp_path)
    yield run
    slurm.cancel_all()


@pytest.fixture
def check() -> Check:
    """The checks."""
    return Check()
