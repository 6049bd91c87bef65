"""Jobs of `rightsizer sbatch` on the real Slurm of the tests."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))
from desk import Desk


@pytest.fixture
def desk(slurm: Any, tmp_path: Path) -> Iterator[Desk]:
    """A desk; its jobs are cancelled at the end."""
    shutil.copy(Path(__file__).with_name("small_train.py"), tmp_path)
    made = Desk(slurm=slurm, folder=tmp_path)
    yield made
    slurm.cancel_all()


class Check:
    """What must hold of a job's records, whatever was done to it."""

    @staticmethod
    def continuous(records: list[dict[str, Any]]) -> bool:
        """Whether every start goes on from the newest checkpoint before it."""
        saved = 0
        for record in records:
            if record["event"] == "checkpoint":
                saved = record["step"]
            elif record["event"] == "start" and record.get("step", 0) != saved:
                return False
        return True

    @staticmethod
    def losses_fall(records: list[dict[str, Any]]) -> bool:
        """Whether the loss after every start, and at the end, is below that of the untrained model."""
        steps = [record for record in records if record["event"] == "step"]
        first, last = steps[0]["loss"], steps[-1]["loss"]
        begun = [
            i for i, record in enumerate(records) if record["event"] == "start" and record.get("step", 0)
        ]
        after = [next((r["loss"] for r in records[i:] if r["event"] == "step"), last) for i in begun]
        return bool(last < first and all(loss < first for loss in after))


@pytest.fixture
def check() -> Check:
    """The checks."""
    return Check()
