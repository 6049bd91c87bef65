"""Jobs of `rightsizer sbatch` on the real Slurm of the tests."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
from desk import Check, Desk


@pytest.fixture
def desk(slurm: Any, tmp_path: Path) -> Iterator[Desk]:
    """A desk; its jobs are cancelled at the end."""
    shutil.copy(Path(__file__).with_name("small_train.py"), tmp_path)
    made = Desk(slurm=slurm, folder=tmp_path)
    yield made
    slurm.cancel_all()


@pytest.fixture
def check() -> Check:
    """The checks."""
    return Check()
