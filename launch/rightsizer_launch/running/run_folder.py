"""A run's directory: its lock, plan, attempts and logs."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rightsizer_api import load
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.untrusted_text import printable
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import DONE, PROGRESS, ProgressReader, Record, naming, write_json

_RUN = "run.json"
_PLAN = "plan.yaml"


@immutable
class RunDirectory:
    """The files of one run; a later run resumes from them."""

    path: Path

    @property
    def plan(self) -> Path:
        """The plan of the last run."""
        return self.path / _PLAN

    @property
    def done(self) -> bool:
        """Whether the training is complete."""
        return (self.path / DONE).exists()

    def records(self) -> list[Record]:
        """All records of the workers so far."""
        return ProgressReader(self.path / PROGRESS).read()

    def attempts(self) -> list[dict[str, Any]]:
        """The attempts so far, oldest first, as run.json holds them."""
        try:
            document = json.loads((self.path / _RUN).read_text())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            remedy = f"cannot be read ({error}); move the directory away to start over"
            raise InputError("run.json", value=str(self.path / _RUN), remedy=remedy) from None
        return list(document["attempts"])

    def totals(self) -> RunTotals:
        """Totals over all records and attempts."""
        launched_s = {int(attempt["number"]): float(attempt["startedAt"]) for attempt in self.attempts()}
        return RunTotals().add(self.records(), launched_s=launched_s)

    def write_attempts(self, attempts: list[dict[str, Any]]) -> None:
        """Replace the list of attempts."""
        write_json(self.path / _RUN, {"attempts": attempts})

    def refuse_other_training(self, plan: TrainingPlan, *, remedy: str) -> None:
        """InputError if the directory's checkpoints are of another model or workload."""
        if not self.plan.exists():
            return
        before = load(self.plan)
        for name in ("model", "workload"):
            if getattr(before.spec, name) != getattr(plan.spec, name):
                differs = f"differs from the run in {self.path}; {remedy}"
                raise InputError(f"spec.{name}", value="changed", remedy=differs)

    def set_aside(self) -> Path:
        """Move an earlier run aside; returns its new path."""
        number = 1
        while (old := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
            number += 1
        self.path.rename(old)
        return old


@contextmanager
def held(path: Path) -> Iterator[RunDirectory]:
    """The directory, locked by this process and created if needed."""
    path.mkdir(parents=True, exist_ok=True)
    with (path / "lock").open("a+b", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().decode().strip() or "unknown"
            remedy = f"is in use by process {holder}; stop that run first, or give another --dir"
            raise InputError("run directory", value=str(path), remedy=remedy) from None
        with naming(path / "lock"):
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n".encode())
        yield RunDirectory(path=path)


def tail(path: Path, *, lines: int = 20) -> str:
    """The last lines of a log; empty if there is none."""
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""


def worker_error(logs: Path, *, lines: int = 12) -> str:
    """The first failed worker's error at the newest restart: its exception, else its last output."""
    return printable(_worker_error(logs, lines))


def _worker_error(logs: Path, lines: int) -> str:
    errors = sorted(logs.glob("worker-*/*/attempt_*/*/error.json"), key=_written)
    newest = max((_restart(path) for path in errors), default=0)
    for path in errors:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if _restart(path) == newest:
                message: Mapping[str, Any] = json.loads(path.read_text())["message"]
                trace = str(message["extraInfo"]["py_callstack"]).strip().splitlines()
                return "\n".join(trace[-lines:])
    outputs = sorted(logs.glob("worker-*/*/attempt_*/*/stderr.log"), key=_written)
    texts = [text for path in reversed(outputs) if (text := tail(path, lines=lines).strip())]
    return texts[0] if texts else tail(logs / "agent-0.log", lines=lines)


def _written(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _restart(path: Path) -> int:
    return int(path.parent.parent.name.removeprefix("attempt_"))
