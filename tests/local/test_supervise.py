"""The supervisor's decisions, with a stand-in for an attempt's processes; test_supervisor runs real ones."""

import dataclasses
import os
import signal

import pytest

from rightsizer_launch.argv.torchrun import Program
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import DONE, EXIT_STOPPED, PROGRESS, Record, append
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_local.processes import JobSpec
from rightsizer_local.supervisor import Ending, StopFlag, stop_on_signals, supervise


class FakeJob:
    """A stand-in for an attempt's processes: what the supervisor sees of them, and what it did to them."""

    def __init__(self, spec, *, agents=0, codes=(), failures=0, store_lives=True, lost=0):
        self.spec, self.began, self.agents, self.codes = spec, 0.0, agents, codes
        self.worker_failures, self.store_lives, self.lost = failures, store_lives, lost
        self.steps_when_stopped, self.done_when_stopped = (), False
        self.stops, self.killed = [], False

    def record(self, event, step=0):
        path = self.spec.run_directory / PROGRESS
        append(
            path,
            Record(
                event=event,
                time=100.0 + step,
                step=step,
                attempt=self.spec.attempt,
                world=self.spec.workers,
                pids=(7, 8) if event == "start" else (),
            ),
        )
        return self

    def done(self):
        (self.spec.run_directory / DONE).touch()
        return self

    def failures(self):
        return self.worker_failures

    def living(self):
        return self.agents

    def exit_codes(self):
        return self.codes

    def replace_lost(self):
        lost, self.lost, self.agents = self.lost, 0, self.agents - self.lost
        return lost

    def stop(self, *, grace_s, cut_short=lambda: False):
        self.stops.append((grace_s, cut_short()))
        for event, step in self.steps_when_stopped:
            self.record(event, step)
        if self.done_when_stopped:
            self.done()
        self.agents = 0

    def kill(self):
        self.killed = True


class Notes:
    """A watcher that keeps its notes."""

    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)

    def update(self, _totals, _failures):
        """Show nothing."""


class Advice:
    """An adviser that changes the first attempt to so many workers."""

    def __init__(self, workers):
        self.workers, self.rejected = workers, []

    def look(self, _totals, spec):
        return dataclasses.replace(spec, workers=self.workers) if spec.attempt == 1 else None

    def failed(self, spec):
        self.rejected.append(spec.workers)


def run(folder, *attempts, stop=None, adviser=None, limit=5, workers=2, totals=None):
    """Supervise attempts, each a function from its spec to its job; the outcome, the jobs and the notes."""
    jobs, watcher = [], Notes()

    def launch(spec):
        jobs.append(attempts[len(jobs)](spec))
        return jobs[-1]

    spec = JobSpec(
        name="count",
        attempt=1,
        workers=workers,
        min_workers=1,
        program=Program(target="worker.py"),
        run_directory=folder,
        working_directory=folder,
        grace_s=30.0,
    )
    finished = supervise(
        spec,
        budget=RestartBudget(limit=limit, within_s=600.0),
        watcher=watcher,
        stop=stop or StopFlag(),
        totals=totals,
        adviser=adviser,
        launch=launch,
    )
    assert all(job.killed for job in jobs)
    return finished, jobs, watcher.notes


def ended(*codes):
    return lambda spec: FakeJob(spec, codes=codes)


@pytest.mark.parametrize(
    ("codes", "ending"),
    [((0, 0), Ending.DONE), ((0, EXIT_STOPPED), Ending.STOPPED)],
    ids=["done", "stopped"],
)
def test_agents_that_exit_without_an_error_end_the_run(tmp_path, codes, ending):
    finished, jobs, _ = run(tmp_path, ended(*codes))
    assert (finished.ending, finished.failures, len(jobs), finished.reason) == (ending, 0, 1, "")


def test_a_complete_run_ends_whatever_its_exit_codes(tmp_path):
    finished, _, _ = run(tmp_path, lambda spec: FakeJob(spec, codes=(1,)).done())
    assert (finished.ending, finished.failures) == (Ending.DONE, 0)


def test_failed_agents_cost_an_attempt_and_the_next_one_continues(tmp_path):
    finished, _, notes = run(tmp_path, ended(1, 0), ended(0))
    assert (finished.ending, finished.failures, finished.last.attempt) == (Ending.DONE, 1, 2)
    assert notes == [
        "all workers exited (exit codes 1, 0)",
        "attempt 2 starts from the last checkpoint",
    ]


def test_failures_without_a_new_step_end_the_run_with_the_reason(tmp_path):
    finished, jobs, _ = run(tmp_path, *[ended(1)] * 3)
    assert (finished.ending, finished.failures, len(jobs)) == (Ending.FAILED, 3, 3)
    assert finished.reason == "3 consecutive failures without a new step"


def test_worker_failures_beyond_the_budget_stop_the_attempt(tmp_path):
    finished, (job,), notes = run(
        tmp_path, lambda spec: FakeJob(spec, agents=2, failures=4).record("step", 3), limit=1
    )
    assert (finished.ending, finished.failures, job.stops) == (Ending.FAILED, 2, [(5.0, False)])
    assert finished.reason == "2 failures within 600 s; the plan allows 1"
    assert notes == ["a worker died; torchrun restarts all workers"] * 2


def test_a_start_is_noted_with_its_workers_and_step(tmp_path):
    def attempt(spec):
        return FakeJob(spec, codes=(0,)).record("start").record("start", 40)

    _, _, notes = run(tmp_path, attempt)
    assert notes == [
        "2 worker(s) train from the beginning (pids 7, 8)",
        "2 worker(s) train from step 40 (pids 7, 8)",
    ]


def test_totals_of_an_earlier_run_continue_and_its_records_are_not_read_again(tmp_path):
    old = JobSpec(
        name="count", attempt=1, workers=2, min_workers=1, program=Program(target="x"),
        run_directory=tmp_path, working_directory=tmp_path,
    )  # fmt: skip
    FakeJob(old).record("step", 9)
    totals = RunTotals(best_step=9)
    finished, _, _ = run(tmp_path, lambda spec: FakeJob(spec, codes=(0,)).record("step", 10), totals=totals)
    assert (finished.totals.best_step, len(finished.totals.records)) == (10, 1)


def test_a_dead_rendezvous_store_costs_an_attempt(tmp_path):
    finished, (first, _), notes = run(
        tmp_path, lambda spec: FakeJob(spec, agents=2, store_lives=False), ended(0)
    )
    assert (finished.ending, finished.failures, first.stops) == (Ending.DONE, 1, [(30.0, False)])
    assert notes[0] == "the rendezvous store died; a new attempt starts with a new store"


def test_a_dead_agent_is_replaced_and_is_no_failure_of_its_own(tmp_path):
    finished, _, notes = run(tmp_path, lambda spec: FakeJob(spec, agents=1, lost=1, codes=(0,)))
    assert (finished.ending, finished.failures) == (Ending.DONE, 0)
    assert notes == ["an agent died; a new one replaces it"]


@pytest.mark.parametrize(
    ("records", "done", "ending", "note"),
    [
        ((("step", 5), ("checkpoint", 5)), False, Ending.STOPPED, "step 5 (checkpoint of step 5)"),
        ((("step", 5),), False, Ending.STOPPED, "step 5 (nothing new was saved)"),
        ((), False, Ending.STOPPED, "step 0 (nothing new was saved)"),
        ((("step", 5),), True, Ending.DONE, "step 5 (nothing new was saved)"),
    ],
    ids=["saved", "not-saved", "no-step", "completed"],
)
def test_a_stop_saves_first_and_prints_the_saved_step(tmp_path, records, done, ending, note):
    def attempt(spec):
        job = FakeJob(spec, agents=2)
        job.steps_when_stopped, job.done_when_stopped = records, done
        return job

    finished, (job,), notes = run(tmp_path, attempt, stop=StopFlag(requests=1))
    assert (finished.ending, job.stops) == (ending, [(30.0, False)])
    assert notes == [
        "stopping: the workers save first (repeat to stop without saving)",
        f"stopped at {note}",
    ]


def test_a_second_stop_cuts_the_grace_period_short(tmp_path):
    _, (job,), _ = run(tmp_path, lambda spec: FakeJob(spec, agents=2), stop=StopFlag(requests=2))
    assert job.stops == [(30.0, True)]


def test_a_resize_saves_stops_and_continues_with_the_new_size(tmp_path):
    finished, (first, second), notes = run(
        tmp_path,
        lambda spec: FakeJob(spec, agents=2),
        lambda spec: FakeJob(spec, codes=(0,)).record("step", 1),
        adviser=Advice(1),
    )
    assert (finished.ending, second.spec.workers, second.spec.attempt) == (Ending.DONE, 1, 2)
    assert first.stops == [(30.0, False)]
    assert notes == [
        "the workers save and stop for the resize",
        "attempt 2 continues with 1 worker(s)",
    ]


@pytest.mark.parametrize(
    ("state", "stops"),
    [({"codes": (1,)}, []), ({"agents": 1, "failures": 1}, [(5.0, False)])],
    ids=["exited", "worker-failed"],
)
def test_a_size_that_never_trained_a_step_is_rolled_back_and_does_not_count(tmp_path, state, stops):
    adviser = Advice(1)
    finished, (_, second, third), notes = run(
        tmp_path,
        lambda spec: FakeJob(spec, agents=2),
        lambda spec: FakeJob(spec, **state),
        ended(0),
        adviser=adviser,
    )
    assert (finished.ending, finished.failures, adviser.rejected) == (Ending.DONE, 0, [1])
    assert (second.stops, third.spec.workers, third.spec.attempt) == (stops, 2, 3)
    assert "1 worker(s) failed to start training; rolled back to 2" in notes


def test_a_failure_after_a_step_at_the_new_size_is_a_failure_and_not_a_rollback(tmp_path):
    adviser = Advice(1)
    finished, (_, _, third), _ = run(
        tmp_path,
        lambda spec: FakeJob(spec, agents=2),
        lambda spec: FakeJob(spec, codes=(1,)).record("step", 1),
        ended(0),
        adviser=adviser,
    )
    assert (finished.failures, adviser.rejected, third.spec.workers) == (1, [], 1)


@pytest.mark.parametrize(("done", "ending"), [(True, Ending.DONE), (False, Ending.STOPPED)])
def test_a_run_that_completes_or_is_stopped_during_a_resize_ends(tmp_path, done, ending):
    stop = StopFlag()

    class Stopping(Advice):
        """Advice during which a signal may come."""

        def look(self, totals, spec):
            stop.requests = 0 if done else 1
            return super().look(totals, spec)

    def attempt(spec):
        job = FakeJob(spec, agents=2)
        job.done_when_stopped = done
        return job

    finished, jobs, _ = run(tmp_path, attempt, stop=stop, adviser=Stopping(1))
    assert (finished.ending, len(jobs)) == (ending, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_counted_inside_only(number):
    before, flag = signal.getsignal(number), StopFlag()
    with stop_on_signals(flag):
        os.kill(os.getpid(), number)
    assert (flag.requests, signal.getsignal(number)) == (1, before)
