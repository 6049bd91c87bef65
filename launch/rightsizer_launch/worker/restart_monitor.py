"""In a pod nobody supervises torchrun: this counts its restarts, gives up by rate, and leaves last words.

torchrun must never use up its own restarts (it would close the rendezvous to every later pod), so it has
plenty, and the plan's budget is kept here. Rank 0's own progress says whether a failure got anywhere.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rightsizer_launch.worker.progress import (
    COME_BACKS,
    ENV_RESTART_LIMIT,
    ENV_RUN_DIRECTORY,
    PROGRESS,
    ProgressReader,
)
from rightsizer_launch.worker.restart_budget import RestartBudget

__all__ = [
    "ENV_RESTART_WITHIN_S",
    "EXIT_GIVEN_UP",
    "Patience",
    "last_words",
    "leave_word",
    "unsupervised",
]

ENV_RESTART_WITHIN_S = "RIGHTSIZER_RESTART_WITHIN_S"
"""The window, seconds."""

EXIT_GIVEN_UP = 78
"""The entrypoint's exit code once the budget is spent (EX_CONFIG: trying again will not help)."""

_TERMINATION_LOG = Path("/dev/termination-log")
_LONGEST = 3000  # bytes of a termination message; Kubernetes keeps 4096


def unsupervised(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs without rightsizer's local supervisor, as in a pod."""
    return ENV_RESTART_LIMIT in environment


class Patience:
    """Watches torchrun's folders for restarts; when the budget is spent, `give_up` is called once."""

    def __init__(
        self, logs: Path, *, give_up: Callable[[], None] | None = None, every_s: float = 0.5
    ) -> None:
        self._logs = logs
        self._every_s = every_s
        self._give_up = give_up or _terminate
        self._seen = 0
        self._step = 0
        home = Path(os.environ.get(ENV_RUN_DIRECTORY, "."))
        self._come_backs = logs.parent / COME_BACKS  # where the entrypoint keeps what is its own
        self._come_backs.unlink(missing_ok=True)  # of an agent before this one, whose folders are gone too
        self._reader = ProgressReader(home / PROGRESS)
        self._reader.read()
        limit, window = os.environ[ENV_RESTART_LIMIT], os.environ.get(ENV_RESTART_WITHIN_S, "3600")
        self._budget = RestartBudget(limit=int(limit), within_s=float(window))
        self._done = threading.Event()
        self.reason = ""

    def __enter__(self) -> "Patience":
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()

    def look(self, now_s: float) -> None:
        """Count what is new."""
        folders = self._logs.glob("*/attempt_*")
        restarts = max((int(path.name.removeprefix("attempt_")) for path in folders), default=0)
        restarts -= self._come_backs.stat().st_size if self._come_backs.exists() else 0
        records = self._reader.read()
        self._step = max((record.step for record in records), default=self._step)
        for _ in range(self._seen, restarts):
            # a pod without rank 0 sees no steps: only the rate counts there
            step = self._step if self._step else self._budget.step + 1
            self._budget = self._budget.failed(now_s=now_s, step=step)
        self._seen = max(self._seen, restarts)
        if self._budget.spent and not self.reason:
            self.reason = self._budget.spent
            self._give_up()

    def _watch(self) -> None:
        while not self._done.wait(self._every_s):
            self.look(time.monotonic())


def last_words(logs: Path) -> str:
    """The newest error that a worker recorded, as its own one-line message; empty if there is none."""
    found = sorted(logs.glob("*/attempt_*/*/error.json"), key=lambda path: path.stat().st_mtime)
    for path in reversed(found):
        try:
            message = json.loads(path.read_text())["message"]
        except (ValueError, KeyError, OSError):
            continue
        return str(message.get("message", "") if isinstance(message, dict) else message).strip()
    return ""


def leave_word(text: str, *, path: Path = _TERMINATION_LOG) -> None:
    """Where Kubernetes looks for a container's last message; elsewhere nothing."""
    if text and path.exists() and os.access(path, os.W_OK):
        path.write_text(text[-_LONGEST:] + "\n")


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
