"""The console script: the garbage collector looks less often, then the command runs.

What a command imports (some 90,000 objects) lives until it exits; looking through it for garbage took 70 ms
of a `rightsizer plan`, and once more at its exit took 3 % of its instructions.
"""

import gc
import os
import sys

_OBJECTS = 200_000  # net allocations between collections; Python's default is 700


def main() -> None:
    """Run the command line of this process."""
    if os.name == "nt":  # file locks, resource limits and signals are those of POSIX
        sys.exit("error: rightsizer runs on Linux and macOS; on Windows, run it in WSL")
    gc.set_threshold(_OBJECTS)
    from rightsizer_cli.main import main as run

    try:
        run()
    finally:
        gc.freeze()  # the interpreter's last collections pass over what there is
