"""Real torchrun processes with a worker that only counts: what is tested is who lives and who dies."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from rightsizer_launch.argv.torchrun import Program
from rightsizer_launch.running.run_folder import worker_error
from rightsizer_launch.worker.progress import ProgressReader
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_local.processes import JobSpec
from rightsizer_local.supervisor import Ending, StopFlag, supervise

pytestmark = pytest.mark.torchrun

COUNTER = Path(__file__).with_name("counter.py").read_text()


class Script:
    """A watcher that acts once, when training has come to a step."""

    def __init__(self, step, act):
        self.step, self.act, self.notes, self.jobs = step, act, [], []

    def note(self, text):
        self.notes.append(text)

    def update(self, totals, _failures):
        if self.act is not None and totals.step >= self.step:
            act, self.act = self.act, None
            act(totals, self.jobs[-1])


def spec(folder, *, workers=1, steps=60, code=COUNTER):
    (folder / "worker.py").write_text(code)
    return JobSpec(
        name="count",
        attempt=1,
        workers=workers,
        min_workers=1,
        program=Program(target="worker.py", arguments=(str(steps),)),
        run_directory=folder,
        working_directory=folder,
        environment={"RIGHTSIZER_CHECKPOINT_INTERVAL_S": "0.5"},
        grace_s=30.0,
    )


def run(job, step=0, act=None, *, stop=None):
    script = Script(step, act)
    budget = RestartBudget(limit=5, within_s=600.0)
    finished = supervise(
        job, budget=budget, watcher=script, stop=stop or StopFlag(), started=script.jobs.append
    )
    assert [old.leftovers() for old in script.jobs] == [()] * len(script.jobs)
    return finished, script


def starts(folder):
    records = ProgressReader(folder / "progress.jsonl").read()
    return [(record.attempt, record.world, record.step) for record in records if record.event == "start"]


def kill_a_worker(totals, _job):
    os.kill(totals.pids[-1], signal.SIGKILL)


def test_a_lost_worker_is_replaced_a_stop_saves_and_fewer_workers_resume(tmp_path):
    job, stop = spec(tmp_path, workers=2, steps=10_000), StopFlag()

    def kill_then_stop(totals, running):
        kill_a_worker(totals, running)
        script.step, script.act = totals.step + 1, lambda _totals, _job: stop.ask()

    script = Script(20, kill_then_stop)
    budget = RestartBudget(limit=5, within_s=600.0)
    finished = supervise(job, budget=budget, watcher=script, stop=stop, started=script.jobs.append)
    assert (finished.ending, finished.failures, finished.totals.workers) == (Ending.STOPPED, 1, 2)
    assert finished.totals.saved_step == finished.totals.step
    assert script.jobs[-1].leftovers() == ()

    fewer = dataclasses.replace(
        job,
        attempt=2,
        workers=1,
        program=Program(target="worker.py", arguments=(str(finished.totals.step + 20),)),
    )
    done, _ = run(fewer)
    assert done.ending is Ending.DONE
    assert starts(tmp_path)[-1] == (2, 1, finished.totals.saved_step)


def test_a_lost_store_costs_an_attempt_not_the_run(tmp_path):
    finished, _ = run(
        spec(tmp_path, steps=80), 20, lambda _totals, job: os.kill(job.store_pid, signal.SIGKILL)
    )
    assert (finished.ending, finished.last.attempt, finished.failures) == (Ending.DONE, 2, 1)
    assert starts(tmp_path)[-1][2] >= 10


def test_a_script_that_cannot_start_is_given_up_with_its_own_words(tmp_path):
    code = "import rightsizer_launch.agent\nraise ValueError('no data in sight')\n"
    finished, _ = run(spec(tmp_path, code=code))
    assert (finished.ending, finished.failures) == (Ending.FAILED, 3)
    assert "without a new step" in finished.reason
    assert worker_error(finished.last.logs).endswith("ValueError: no data in sight")
