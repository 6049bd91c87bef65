"""Commands that run and end, locks, and conditions that are waited for."""

import fcntl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from place import ClusterError

POLL_S = 0.1


def ask(*argv: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command; the caller looks at how it ended."""
    return subprocess.run(argv, check=False, capture_output=True, text=True, input=text)


def run(*argv: str | Path, text: str | None = None) -> str:
    """Run a command that must succeed; its output."""
    done = ask(*argv, text=text)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise ClusterError(f"`{' '.join(map(str, argv))}` failed: {said}")
    return done.stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One holder at a time on this machine; the kernel opens the lock when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def wait(what: str, condition: Callable[[], bool], *, within_s: float, look_at: Path) -> None:
    """Return when the condition holds."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise ClusterError(f"{what}: not there after {within_s:.0f} s; see {look_at}")
        time.sleep(POLL_S)
