"""`python -m rightsizer_slurm.monitor.publish`: copies a run's records to the site's folder of runs.

Homes are private, and the daemon is another user. So the job copies what the monitor reads, as its own user,
to DIR/JOB, where DIR is `runs` in rightsizer.conf. DIR passes the daemon's group on (setgid): the daemon can
read and remove the copies, other users cannot. The batch script removes them when it ends.
"""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rightsizer_launch.worker.progress import DONE, PROGRESS
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.monitor import size_records

TAIL_BYTES = 2**20
"""How much of progress.jsonl a look reads: about 5,000 steps."""
_FILES = ("plan.yaml", runfile.NAME, size_records.NAME, DONE, PROGRESS)
_EVERY_S = 15.0
_POLL_S = 1.0
_ONLY_GROUP = 0o007


def publish(run: Path, to: Path) -> None:
    """Replace the copies that are older than their files. OSError if the folder cannot be written."""
    to.mkdir(exist_ok=True)
    for name in _FILES:
        source, copy = run / name, to / name
        with contextlib.suppress(FileNotFoundError):
            if not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime:
                temporary = to / f".{name}"
                temporary.write_bytes(_tail(source))
                temporary.replace(copy)


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES)


def main(argv: Sequence[str] | None = None) -> int:
    """Publish until the process --until ends."""
    parser = argparse.ArgumentParser(prog="rightsizer_slurm.monitor.publish", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the run's directory")
    parser.add_argument("--to", type=Path, required=True, help="the copies' folder")
    parser.add_argument("--until", type=int, required=True, metavar="PID")
    arguments = parser.parse_args(argv)
    os.umask(_ONLY_GROUP)
    said, next_s = "", 0.0
    while _lives(arguments.until):
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _EVERY_S
            try:
                publish(arguments.run, arguments.to)
            except OSError as error:
                if error.strerror and error.strerror != said:
                    said = error.strerror
                    sys.stderr.write(f"rightsizer: the monitor cannot see this run: {arguments.to}: {said}\n")
        time.sleep(_POLL_S)
    return 0


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
