"""Supervises one run: attempts, restarts within the budget, a stop that saves first."""

import enum
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Protocol

from rightsizer_engine.values import immutable
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import DONE, EXIT_STOPPED, PROGRESS, ProgressReader
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_local.processes import JobSpec, LocalJob, next_attempt

_POLL_S = 0.2
_SCAN_S = 1.0
_LEAVE_S = 30.0  # time for the agents' exit barrier after the training is complete


class Ending(enum.StrEnum):
    """The end of a run."""

    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Watcher(Protocol):
    """Receives notes and progress; the live view."""

    def note(self, text: str) -> None:
        """Show an event."""

    def update(self, totals: RunTotals, failures: int) -> None:
        """Show the progress."""


class Adviser(Protocol):
    """Decides whether a job continues with another number of workers."""

    def look(self, totals: RunTotals, spec: JobSpec) -> JobSpec | None:
        """The job to change to now; None: no change."""

    def failed(self, spec: JobSpec) -> None:
        """The changed job failed to start training."""


class _NoAdvice:
    """Never changes the job."""

    def look(self, _totals: RunTotals, _spec: JobSpec) -> JobSpec | None:
        return None

    def failed(self, _spec: JobSpec) -> None:
        return None


@dataclass(slots=True)
class StopFlag:
    """Counts stop signals; the second one stops without saving."""

    requests: int = 0

    def ask(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Count a request."""
        self.requests += 1


@dataclass(slots=True)
class Until:
    """A watcher that stops the run once `reason` returns one; it forwards everything to `view`."""

    view: Watcher
    stop: StopFlag
    reason: Callable[[RunTotals], str]

    def note(self, text: str) -> None:
        """Show an event."""
        self.view.note(text)

    def update(self, totals: RunTotals, failures: int) -> None:
        """Show the progress; stop with a reason, once."""
        self.view.update(totals, failures)
        if not self.stop.requests and (reason := self.reason(totals)):
            self.view.note(reason)
            self.stop.ask()


@immutable
class Finished:
    """The outcome: ending, totals, failures over all attempts, and the reason of a failure."""

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
    good: JobSpec | None = None  # the job to roll back to, until the changed job has trained a step
    scanned_s: float = field(default=0.0)

    def read(self, job: LocalJob) -> None:
        """Read the job's new records and count its worker failures."""
        records = self.reader.read()
        self.totals = self.totals.add(records, launched_s={job.spec.attempt: job.began})
        now_s = time.monotonic()
        if now_s - self.scanned_s >= _SCAN_S:
            self.scanned_s = now_s
            for _ in range(job.failures() - self.seen):
                if self.budget.spent or self.good is not None:
                    break  # already given up: later failures carry no information
                self.failed("a worker died; torchrun restarts all workers")
            self.seen = max(self.seen, job.failures())
        for record in records:
            if record.event == "start":
                where = f"from step {record.step}" if record.step else "from the beginning"
                self.watcher.note(f"{record.world} worker(s) train {where} (pids {_listed(record.pids)})")
            if record.event == "step" and record.attempt == self.spec.attempt:
                self.good = None
        self.watcher.update(self.totals, self.failures)

    def follow(self) -> JobSpec:
        """The next attempt's job: the changed one, the one before a failed change, or the same."""
        before, wanted, good = self.spec, self.wanted, self.good
        self.wanted = self.good = None
        if wanted is not None:
            self.good = before
            self.watcher.note(f"attempt {before.attempt + 1} continues with {wanted.workers} worker(s)")
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
            return  # a failed resize is rolled back and does not count
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
    started: Callable[[LocalJob], None] = lambda _job: None,
    launch: Callable[[JobSpec], LocalJob] = LocalJob,
) -> Finished:
    """Run attempts until the training is done, stopped or given up; no process is left behind.

    `totals` holds the totals of earlier runs in the same directory. `launch` starts an attempt's processes;
    `started` is called with each attempt's job. `adviser` may change the job, which then saves, stops and
    continues as advised. If the changed job fails to start training, it is rolled back.
    """
    path = spec.run_directory / PROGRESS
    reader = ProgressReader(path, offset=path.stat().st_size if path.exists() else 0)
    run = _Run(
        spec=spec,
        watcher=watcher,
        reader=reader,
        budget=budget,
        totals=totals or RunTotals(),
        adviser=adviser or _NoAdvice(),
    )
    while True:
        job = launch(run.spec)
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


def _attempt(run: _Run, job: LocalJob, stop: StopFlag) -> Ending | None:
    """Watch one attempt; None if it failed."""
    done_s: float | None = None
    while True:
        run.read(job)
        if stop.requests:
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
            run.failed("the rendezvous store died; a new attempt starts with a new store")
            job.stop(grace_s=run.spec.grace_s, cut_short=lambda: stop.requests > 1)
            break
        elif job.replace_lost():
            run.watcher.note("an agent died; a new one replaces it")
        time.sleep(_POLL_S)
    return None


def _gone(run: _Run, job: LocalJob) -> Ending | None:
    """The ending after all agents have exited, from their exit codes; None: failed."""
    codes = job.exit_codes()
    if set(codes) <= {0, EXIT_STOPPED}:
        return Ending.STOPPED if EXIT_STOPPED in codes else Ending.DONE
    run.failed(f"all workers exited (exit codes {', '.join(str(code) for code in codes)})")
    return None


def _changes(run: _Run, job: LocalJob, stop: StopFlag) -> bool:
    """Whether the attempt ends for a change: as advised, or because a changed job fails to start training."""
    if run.good is not None:
        if not job.failures():
            return False
        job.stop(grace_s=5.0)
        return True
    run.wanted = run.adviser.look(run.totals, run.spec)
    if run.wanted is None:
        return False
    run.watcher.note("the workers save and stop for the resize")
    job.stop(grace_s=run.spec.grace_s, cut_short=lambda: stop.requests > 1)
    run.read(job)
    return True


def _left(run: _Run, stop: StopFlag) -> Ending | None:
    """The ending after a stop for a change: done, stopped by a signal, or None to continue."""
    if (run.spec.run_directory / DONE).exists():
        return Ending.DONE
    return Ending.STOPPED if stop.requests else None


def _stop(run: _Run, job: LocalJob, stop: StopFlag) -> Ending:
    """Save and stop; a second signal or the end of the grace period kills the workers."""
    before = run.totals.saved_step
    run.watcher.note("stopping: the workers save first (repeat to stop without saving)")
    job.stop(grace_s=run.spec.grace_s, cut_short=lambda: stop.requests > 1)
    run.read(job)
    saved = run.totals.saved_step
    fresh = saved > before or (saved == run.totals.step and saved > 0)
    saved_text = f"checkpoint of step {saved}" if fresh else "nothing new was saved"
    run.watcher.note(f"stopped at step {run.totals.step} ({saved_text})")
    return Ending.DONE if (run.spec.run_directory / DONE).exists() else Ending.STOPPED


def _listed(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in pids)
