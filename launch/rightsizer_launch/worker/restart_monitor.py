"""Counts torchrun's restarts in a pod, enforces the plan's restart budget, reports why workers failed.

torchrun must never use up its own restarts: it would close the rendezvous to later pods. Its limit is
therefore very high, and this monitor keeps the plan's budget. Rank 0's progress shows whether the training
advanced between failures.
"""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rightsizer_launch.worker.progress import (
    ENV_RESTART_LIMIT,
    ENV_RUN_DIRECTORY,
    PROGRESS,
    STEP,
    VOLUNTARY_RESTARTS,
    ProgressReader,
)
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_launch.worker.worker_exits import describe_exit, oom_kills

ENV_RESTART_WITHIN_S = "RIGHTSIZER_RESTART_WITHIN_S"
"""The window of the restart budget, in seconds."""

ENV_START_TIMEOUT_S = "RIGHTSIZER_START_TIMEOUT_S"
"""Seconds in which a start must train its first step, if the plan sets it."""
DEFAULT_START_TIMEOUT_S = 3600.0

EXIT_GIVEN_UP = 78
"""The entrypoint's exit code once the budget is spent (EX_CONFIG: a retry will not help)."""

LAST_LINE = "rightsizer: "
"""What the last line of a failed worker's log begins with, if it states why the entrypoint ended."""

_TERMINATION_LOG = Path("/dev/termination-log")
_LONGEST = 3000  # bytes of a termination message; Kubernetes keeps 4096


def unsupervised(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs without rightsizer's local supervisor, as in a pod."""
    return ENV_RESTART_LIMIT in environment


class RestartMonitor:
    """Watches torchrun's log folders for restarts; calls `give_up` once when the budget is spent."""

    def __init__(
        self,
        logs: Path,
        *,
        give_up: Callable[[], None] | None = None,
        every_s: float = 0.5,
        count_oom_kills: Callable[[], int] = oom_kills,
        began_s: float | None = None,
    ) -> None:
        self._logs = logs
        self._every_s = every_s
        self._give_up = give_up or _terminate
        self._seen = 0
        self._step = 0
        home = Path(os.environ.get(ENV_RUN_DIRECTORY, "."))
        self._voluntary_restarts = logs.parent / VOLUNTARY_RESTARTS  # the entrypoint's scratch folder
        self._voluntary_restarts.unlink(missing_ok=True)  # left by an earlier agent
        self._noted_step = logs.parent / STEP
        self._began_s = time.monotonic() if began_s is None else began_s
        self._start_s = float(os.environ.get(ENV_START_TIMEOUT_S, DEFAULT_START_TIMEOUT_S))
        self._reader = ProgressReader(home / PROGRESS)
        self._reader.read()
        limit, window = os.environ[ENV_RESTART_LIMIT], os.environ.get(ENV_RESTART_WITHIN_S, "3600")
        self._budget = RestartBudget(limit=int(limit), within_s=float(window))
        self._done = threading.Event()
        self._oom_kills = count_oom_kills
        self._oom_kills_before = count_oom_kills()
        self.reason = self.cause = ""
        self.exit_code = EXIT_GIVEN_UP

    def __enter__(self) -> "RestartMonitor":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()

    def worker_failed(self, exit_code: int) -> None:
        """A worker of this pod ended with this code (negative: by that signal); 64 is never retried."""
        killed = self._oom_kills() - self._oom_kills_before
        self.cause = describe_exit(exit_code, out_of_memory=exit_code == -signal.SIGKILL and killed > 0)
        if exit_code == os.EX_USAGE and not self.reason:
            self.reason, self.exit_code = "the script asked for no retry", os.EX_USAGE
            self._give_up()

    def poll(self, now_s: float) -> None:
        """Count new restarts."""
        folders = self._logs.glob("*/attempt_*")
        restarts = max((int(path.name.removeprefix("attempt_")) for path in folders), default=0)
        restarts -= self._voluntary_restarts.stat().st_size if self._voluntary_restarts.exists() else 0
        records = self._reader.read()
        self._step = max((record.step for record in records), default=self._step)
        with contextlib.suppress(OSError, ValueError):  # not there, or just being written
            self._step = max(self._step, int(self._noted_step.read_text()))
        for _ in range(self._seen, restarts):
            # of a script that reports no steps, workers that ran for long have trained
            trained = now_s - self._began_s >= self._start_s
            step = self._step if self._step else self._budget.step + trained
            self._budget, self._began_s = self._budget.failed(now_s=now_s, step=step), now_s
            if self._budget.spent:  # torchrun may have restarted again since; the limit was reached here
                break
        self._seen = max(self._seen, restarts)
        if self._budget.spent and not self.reason:
            self.reason = self._budget.spent
            self._give_up()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.poll(time.monotonic())


def last_error(logs: Path) -> str:
    """The newest error recorded by a worker, in one line; empty if there is none."""
    paths = sorted(logs.glob("*/attempt_*/*/error.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(paths):
        try:
            message = json.loads(path.read_text())["message"]
        except (ValueError, KeyError, OSError):
            continue
        return str(message.get("message", "") if isinstance(message, dict) else message).strip()
    return ""


def write_termination_message(text: str, *, path: Path = _TERMINATION_LOG) -> None:
    """Write the container's termination message; a no-op outside Kubernetes."""
    if text and path.exists() and os.access(path, os.W_OK):
        path.write_text(text[-_LONGEST:] + "\n")


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
