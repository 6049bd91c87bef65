"""Runs a training script in this process and observes it.

torchrun starts `python -m rightsizer_launch.stacks.observe STACK SCRIPT ARGUMENTS` on every rank. The script
sees the `sys.argv`, `sys.path` and `__main__` that it would see without it.
"""

import importlib
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rightsizer_launch.stacks.catalog import OBSERVED
from rightsizer_launch.stacks.import_hook import after_import

__all__ = ["main"]


def main(argv: Sequence[str]) -> None:
    """Run `argv[1:]` (FILE ..., -m MODULE ... or a program on the PATH), observed as stack `argv[0]`."""
    stack, *command = argv
    for module, adapter in OBSERVED[stack].hooks.items():
        after_import(module, importlib.import_module(f"rightsizer_launch.stacks.{adapter}").observe)
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    script = command[0] if Path(command[0]).is_file() else shutil.which(command[0]) or command[0]
    sys.argv = [script, *command[1:]]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
