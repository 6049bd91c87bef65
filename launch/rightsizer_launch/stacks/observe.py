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
from rightsizer_launch.stacks.log_lines import FORMATS, observe_lines


def main(argv: Sequence[str]) -> None:
    """Run `argv[1:]` (FILE ..., -m MODULE ... or a program on the PATH), observed as stack `argv[0]`.

    A program that is not Python runs as it is.
    """
    stack, *command = argv
    for module, adapter in OBSERVED[stack].hooks.items():
        after_import(module, importlib.import_module(f"rightsizer_launch.stacks.{adapter}").observe)
    if stack in FORMATS:
        observe_lines(FORMATS[stack])
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    script = command[0] if Path(command[0]).is_file() else shutil.which(command[0]) or command[0]
    if not _is_python(script):
        os.execv(script, [script, *command[1:]])  # noqa: S606 -- the plan's own program; nothing observes it
    sys.argv = [script, *command[1:]]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def _is_python(script: str) -> bool:
    """Whether a file is a Python program: by its name, or by the interpreter that its first line names."""
    if script.endswith(".py") or not Path(script).is_file():
        return True
    with Path(script).open("rb") as file:
        return b"python" in file.readline(1024)


if __name__ == "__main__":
    main(sys.argv[1:])
