"""Watches one run to its end: attempts, restarts within the budget, a stop that saves. The one loop."""

import enum
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Protocol

from rightsizer.values import immutable
from rightsizer_launch.local.processes import Job, JobSpec, next_attempt
from rightsizer_launch.run_totals import RunTotals
from rightsizer_launch.worker.progress import DONE, EXIT_STOPPED, PROGRESS, ProgressReader
from rightsizer_launch.worker.restart_budget import RestartBudget

__all__ = ["Adviser", "Ending", "Finished", "StopFlag", "Watcher", "stop_on_signals", "supervise"]

_POLL_S = 0.2
_SCAN_S = 1.0
_LEAVE_S = 30.0  # after the training is done, agents still wait for each other


class Ending(enum.StrEnum):
    """How a run ended."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Watcher(Protocol):
    """Who is told; the view."""

    def note(self, text: str) -> None:
        """Something happened."""

    def update(self, totals: RunTotals, failures: int) -> None:
        """Where training stands."""


class Adviser(Protocol):
    """Who says that a job should go on with other workers."""

    def look(self, totals: RunTotals, spec: JobSpec) -> JobSpec | None:
        """The job to change to, now; None to leave it as it is."""

    def failed(self, spec: JobSpec) -> None:
        """A job that was changed to failed to start training."""


class _Nobody:
    """Advises nothing."""

    def look(self, _totals: RunTotals, _spec: JobSpec) -> JobSpec | None:
        return None

    def failed(self, _spec: JobSpec) -> None:
        return None


@dataclass(slots=True)
class StopFlag:
    """Set by a signal; the second one says that nobody wants to wait."""

    asked: int = 0

    def ask(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Ask once more."""
        self.asked += 1


@immutable
class Finished:
    """How it ended, what it added up to, failures in all, and why it was given up."""

    ending: Ending
    totals: RunTotals
    failures: int
    reason: str = ""
    last: JobSpec


@contextmanager
def stop_on_signals(flag: StopFlag) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP set the flag while inside."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, flag.ask) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(slots=True)
class _Run:
    """The loop's state."""

    spec: JobSpec
    watcher: Watcher
    reader: ProgressReader
    budget: RestartBudget
    totals: RunTotals
    adviser: Adviser
    failures: int = 0
    seen: int = 0
    wanted: JobSpec | None = None
    good: JobSpec | None = None  # what to return to, until a changed job has trained a step
    scanned_s: float = field(default=0.0)

    def read(self, job: Job) -> None:
        """Take in what the job wrote and how often its workers failed."""
        records = self.reader.read()
        self.totals = self.totals.add(records, launched_s={job.spec.attempt: job.began})
        now_s = time.monotonic()
        if now_s - self.scanned_s >= _SCAN_S:
            self.scanned_s = now_s
            for _ in range(job.failures() - self.seen):
                if self.budget.spent or self.good is not None:
                    break  # given up: what fails until the last agent is gone says nothing more
                self.failed("a worker died; torchrun restarts the others with it")
            self.seen = max(self.seen, job.failures())
        for record in records:
            if record.event == "start":
                where = f"from step {record.step}" if record.step else "from the beginning"
                self.watcher.note(f"{record.world} worker(s) train {where} (pids {_listed(record.pids)})")
            if record.event == "step" and record.attempt == self.spec.attempt:
                self.good = None
        self.watcher.update(self.totals, self.failures)

    def follow(self) -> JobSpec:
        """What comes after an attempt: a changed job, what was before one that failed, or the same again."""
        before, wanted, good = self.spec, self.wanted, self.good
        self.wanted = self.good = None
        if wanted is not None:
            self.good = before
            self.watcher.note(f"attempt {before.attempt + 1} goes on with {wanted.workers} worker(s)")
            return next_attempt(replace(wanted, attempt=before.attempt))
        if good is not None:
            self.adviser.failed(before)
            self.watcher.note(
                f"{before.workers} worker(s) failed to start training; rolled back to {good.workers}"
            )
            return next_attempt(replace(good, attempt=before.attempt))
        self.watcher.note(f"attempt {before.attempt + 1} starts from the last checkpoint")
        return next_attempt(before)

    def failed(self, what: str) -> None:
        """Count a failure."""
        if self.good is not None:
            return  # a resize that fails is taken back, and no fault of the training's
        self.failures += 1
        self.budget = self.budget.failed(now_s=time.monotonic(), step=self.totals.best_step)
        self.watcher.note(what)


def supervise(
    spec: JobSpec,
    *,
    budget: RestartBudget,
    watcher: Watcher,
    stop: StopFlag,
    totals: RunTotals | None = None,
    adviser: Adviser | None = None,
    started: Callable[[Job], None] = lambda _job: None,
) -> Finished:
    """Run attempts until the training is done, stopped, or given up; no process is left behind.

    `totals` is what earlier runs of the same directory added up to; `started` is told of every attempt's job.
    `adviser` may change the job: it saves and stops, and goes on as advised; if that fails to start training,
    as before.
    """
    path = spec.run_directory / PROGRESS
    reader = ProgressReader(path, offset=path.stat().st_size if path.exists() else 0)
    run = _Run(
        spec=spec,
        watcher=watcher,
        reader=reader,
        budget=budget,
        totals=totals or RunTotals(),
        adviser=adviser or _Nobody(),
    )
    while True:
        job = Job(run.spec)
        try:
            started(job)
            ending = _attempt(run, job, stop)
        finally:
            job.kill()
        run.read(job)
        if ending is None and not run.budget.spent:
            run.spec, run.seen = run.follow(), 0
            continue
        return Finished(
            ending=ending or Ending.FAILED,
            totals=run.totals,
            failures=run.failures,
            reason=run.budget.spent if ending is None else "",
            last=run.spec,
        )


def _attempt(run: _Run, job: Job, stop: StopFlag) -> Ending | None:
    """Watch one attempt; None when it broke."""
    done_s: float | None = None
    while True:
        run.read(job)
        if stop.asked:
            return _stop(run, job, stop)
        if run.budget.spent:
            job.stop(grace_s=5.0)
            return None
        done = (run.spec.run_directory / DONE).exists()
        if done:
            done_s = done_s or time.monotonic()
            if not job.living() or time.monotonic() - done_s > _LEAVE_S:
                return Ending.DONE
        elif _changes(run, job, stop):
            return _left(run, stop)
        elif not job.living():
            return _gone(run, job)
        elif not job.store_lives:
            run.failed("the rendezvous store died; a new one and a new attempt take over")
            job.stop(grace_s=run.spec.grace_s, impatient=lambda: stop.asked > 1)
            break
        elif job.replace_lost():
            run.watcher.note("an agent died; a new one joins the others")
        time.sleep(_POLL_S)
    return None


def _gone(run: _Run, job: Job) -> Ending | None:
    """How a run stands whose agents have all ended: a script without our agent says it by its exit code."""
    codes = job.exit_codes()
    if set(codes) <= {0, EXIT_STOPPED}:
        return Ending.STOPPED if EXIT_STOPPED in codes else Ending.DONE
    run.failed(f"all workers are gone (exit codes {', '.join(str(code) for code in codes)})")
    return None


def _changes(run: _Run, job: Job, stop: StopFlag) -> bool:
    """Whether this attempt ends for another: as advised, or because a changed job fails to start training."""
    if run.good is not None:
        if not job.failures():
            return False
        job.stop(grace_s=5.0)
        return True
    run.wanted = run.adviser.look(run.totals, run.spec)
    if run.wanted is None:
        return False
    run.watcher.note("the workers save and stop, to go on as advised")
    job.stop(grace_s=run.spec.grace_s, impatient=lambda: stop.asked > 1)
    run.read(job)
    return True


def _left(run: _Run, stop: StopFlag) -> Ending | None:
    """How a run stands that stopped for a change: done by now, asked to stop meanwhile, or to go on."""
    if (run.spec.run_directory / DONE).exists():
        return Ending.DONE
    return Ending.STOPPED if stop.asked else None


def _stop(run: _Run, job: Job, stop: StopFlag) -> Ending:
    """Save and leave; a second signal, or the end of the grace time, ends it at once."""
    before = run.totals.saved_step
    run.watcher.note("stopping: the workers save first (once more to leave without)")
    job.stop(grace_s=run.spec.grace_s, impatient=lambda: stop.asked > 1)
    run.read(job)
    saved = run.totals.saved_step
    fresh = saved > before or (saved == run.totals.step and saved > 0)
    word = f"checkpoint of step {saved}" if fresh else "nothing new was saved"
    run.watcher.note(f"stopped at step {run.totals.step} ({word})")
    return Ending.DONE if (run.spec.run_directory / DONE).exists() else Ending.STOPPED


def _listed(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in pids)
