"""The environments of the stacks, each kept outside the checkout."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checkout import PACKAGES, ROOT

sys.path.append(str(Path(__file__).parent))

STANDINS = Path(__file__).parent / "standins"
"""A folder on PYTHONPATH for a stack that needs what this machine lacks."""


@pytest.fixture(scope="session")
def environment_of() -> Callable[[str], tuple[str, dict[str, str]]]:
    """environment_of(stack): its Python, and the variables for a process of it."""

    def built(stack: str) -> tuple[str, dict[str, str]]:
        script = [ROOT / "scripts/stack_env.sh", stack]
        python = Path(subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip())
        return str(python), os.environ | {
            "PATH": os.pathsep.join((str(python.parent), os.environ["PATH"])),
            "PYTHONPATH": os.pathsep.join(map(str, (*map(ROOT.joinpath, PACKAGES), STANDINS / stack))),
            "TORCH_EXTENSIONS_DIR": str(python.parents[1] / "torch_extensions"),
            "RIGHTSIZER_CALIBRATION": "",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }

    return built
