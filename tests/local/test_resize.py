"""A run that is resized: real torchrun processes, a worker that only counts, the policy on its records."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_api import validate
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.resize.types import Action, Mode, Pressure
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan, Request
from rightsizer_launch.argv.torchrun import Program
from rightsizer_launch.running.limits import Tuning
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import ProgressReader, Record
from rightsizer_launch.worker.restart_budget import RestartBudget
from rightsizer_local import machine
from rightsizer_local.processes import JobSpec
from rightsizer_local.resize import LocalResizer, history_of_attempts, scaling_of, tuning_of
from rightsizer_local.supervisor import Ending, StopFlag, supervise

MEASURED = {
    "matmul_flop_per_s": 8e10,
    "copy_bytes_per_s": 8e9,
    "all_reduce_bytes_per_s": 1e9,
    "together_step_s": 0.4,
    "alone_step_s": 0.2,
}
"""Two workers are no faster than one."""

PLAN = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {"name": "count"},
    "spec": {
        "model": {"dimensions": {"layers": 2, "hidden": 128, "heads": 4, "vocab": 256}},
        "workload": {"tokens": "1M", "sequenceLength": 128, "globalBatchSequences": 16},
        "launch": {"framework": "ddp", "command": ["worker.py"]},
        "elasticity": {"mode": "Auto"},
    },
}

COUNTER = Path(__file__).with_name("counter.py").read_text()


def planned(workers=2, clusters=None):
    """The plan of a small model on a machine of two slow workers, on exactly so many of them."""
    clusters = clusters or tuple(
        machine.cpu_cluster(MEASURED, workers=n, most=2, memory_bytes=8e9) for n in (1, 2)
    )
    answer = size(
        Request(
            architecture=replace(
                lookup.model("Llama 3.1 8B"), name="small", layers=2, hidden=128, ffn_hidden=256,
                heads=4, kv_heads=4, head_dim=32, vocab=256,
            ),
            workload=Workload(
                tokens=1e9, sequence_tokens=128, global_batch_sequences=16, precision=Precision.FP32
            ),
            framework=lookup.framework("ddp"),
            clusters=clusters[workers - 1 : workers],
            gpu_counts=(workers,),
        )
    )  # fmt: skip
    assert isinstance(answer, Plan), answer
    return answer, clusters


class Notes:
    """A watcher that stops the run when `enough` returns True."""

    def __init__(self, stop, enough):
        self.stop, self.enough, self.notes = stop, enough, []

    def note(self, text):
        self.notes.append(text)

    def update(self, totals, _failures):
        if not self.stop.requests and self.enough(totals):
            self.stop.ask()


def resized(folder, *, broken=0, enough):
    """A run that starts with two workers where one would do; sizes of `broken` workers fail."""
    (folder / "worker.py").write_text(COUNTER)
    answer, clusters = planned()

    def job(option):
        return JobSpec(
            name="count",
            attempt=1,
            workers=option.gpus,
            min_workers=option.gpus,
            program=Program(target="worker.py", arguments=("1000000", str(broken))),
            run_directory=folder,
            working_directory=folder,
            environment={"RIGHTSIZER_CHECKPOINT_INTERVAL_S": "0.5"},
        )

    resizer = LocalResizer(
        plan=validate(PLAN),
        option=answer.option,
        tuning=Tuning(cap=Mode.AUTO, least_window_s=2.0, warm_up_s=1.0, pressure=Pressure.ALWAYS),
        target_tokens=1e6,
        deadline_s=None,
        scaling=lambda option: scaling_of(answer.request, option, clusters),
        job=job,
    )  # fmt: skip
    resizer.deadline_s = resizer.clock() + 1e7
    stop = StopFlag()
    watcher = Notes(stop, enough)
    resizer.note = watcher.note
    finished = supervise(
        job(answer.option),
        budget=RestartBudget(limit=5, within_s=600.0),
        watcher=watcher,
        stop=stop,
        adviser=resizer,
    )
    records = ProgressReader(folder / "progress.jsonl").read()
    return finished, resizer, watcher.notes, records


@pytest.mark.torchrun
def test_a_run_with_too_many_workers_shrinks_and_its_loss_continues(tmp_path):
    finished, resizer, notes, records = resized(
        tmp_path, enough=lambda totals: totals.attempt == 2 and totals.workers == 1 and totals.step > 20
    )
    assert finished.ending is Ending.STOPPED
    assert finished.failures == 0
    starts = [(r.attempt, r.world) for r in records if r.event == "start"]
    assert starts == [(1, 2), (2, 1)]
    losses = [r.loss for r in records if r.event == "step"]
    assert all(after < before for before, after in itertools.pairwise(losses))  # saved first: nothing twice
    assert any("shrink to 1 worker(s)" in note for note in notes)
    assert resizer.decision.action is Action.SHRINK
    assert resizer.decision.saves_gpu_hours > resizer.decision.price_gpu_hours
    assert "which saves" in resizer.last_change(1)["reason"]


@pytest.mark.torchrun
def test_a_size_that_fails_to_start_training_is_rolled_back(tmp_path):
    finished, resizer, notes, records = resized(
        tmp_path, broken=1, enough=lambda totals: totals.attempt == 3 and totals.step > 20
    )
    assert finished.ending is Ending.STOPPED
    assert finished.failures == 0
    worlds = [(r.attempt, r.world) for r in records if r.event == "step"]
    assert set(worlds) == {(1, 2), (3, 2)}
    assert any("failed to start training; rolled back to 2" in note for note in notes)
    assert resizer.history.failed_gpus == (1,)


def test_a_resumed_run_remembers_its_resizes_and_the_sizes_that_failed():
    attempts = [
        {"workers": 2, "startedAt": 10.0, "reason": "", "cause": ""},
        {"workers": 1, "startedAt": 20.0, "reason": "saves", "cause": "Measured"},
        {"workers": 2, "startedAt": 30.0, "reason": "1 worker(s) failed", "cause": "Failure"},
        {"workers": 2, "startedAt": 99.0, "reason": "", "cause": ""},
    ]
    history = history_of_attempts(attempts)
    assert (history.last_resize_s, history.failed_gpus, history.first_gpus) == (30.0, (1,), 2)


def test_a_machine_s_sizes_follow_the_measurements():
    answer, clusters = planned()
    scaling = scaling_of(answer.request, answer.option, clusters)
    rate = answer.option.tokens_per_s
    one, two = scaling.sizes(gpus=2, tokens_per_s=rate / 2, steps=100)
    assert (one.gpus, two.gpus) == (1, 2)
    assert two.tokens_per_s == pytest.approx(rate / 2)
    assert one.tokens_per_s == pytest.approx(two.tokens_per_s, rel=0.3)
    assert one.option.global_batch_sequences == two.option.global_batch_sequences


def recorded(folder, cap, *, now_s=305.0, interval_s=60, steps=300, framework="ddp"):
    """A resizer, its job and the totals of steady steps on two workers where one is enough."""
    answer, clusters = planned()

    def job(option):
        return JobSpec(
            name="count",
            attempt=1,
            workers=option.gpus,
            min_workers=option.gpus,
            program=Program(target="worker.py"),
            run_directory=folder,
            working_directory=folder,
            environment={"RIGHTSIZER_CHECKPOINT_INTERVAL_S": f"{interval_s}"},
        )

    launch = PLAN["spec"]["launch"] | {"framework": framework}
    resizer = LocalResizer(
        plan=validate(PLAN | {"spec": PLAN["spec"] | {"launch": launch}}),
        option=answer.option,
        tuning=Tuning(cap=cap, least_window_s=60.0, warm_up_s=10.0, pressure=Pressure.ALWAYS),
        target_tokens=1e6,
        deadline_s=1e8,
        scaling=lambda option: scaling_of(answer.request, option, clusters),
        job=job,
        clock=lambda: now_s,
    )
    rows = [
        Record(event="step", time=4.0 + n, step=n, tokens=n, step_s=1.0, world=2, attempt=1)
        for n in range(1, steps + 1)
    ]
    totals = RunTotals(attempt=1).add(rows)
    return resizer, job(answer.option), totals


def test_a_resize_and_its_rollback_are_recorded_with_their_causes(tmp_path):
    resizer, job, totals = recorded(tmp_path, Mode.AUTO)
    assert resizer.last_change(2) == {"cause": "", "reason": ""}
    assert resizer.look(totals, job).workers == 1
    assert resizer.last_change(1) == {"cause": "Measured", "reason": resizer.decision.reason}
    resizer.failed(resizer.job(resizer.option))
    assert resizer.option.gpus == 2
    assert resizer.last_change(2)["cause"] == "Failure"


def test_a_stack_that_cannot_resume_is_never_resized(tmp_path):
    resizer, job, totals = recorded(tmp_path, Mode.AUTO, framework="nanotron")
    assert resizer.look(totals, job) is None
    assert resizer.option.gpus == 2


def test_a_recommended_resize_is_noted_and_not_carried_out(tmp_path):
    resizer, job, totals = recorded(tmp_path, Mode.RECOMMEND)
    notes = []
    resizer.note = notes.append
    assert resizer.look(totals, job) is None
    assert (resizer.decision.action, resizer.decision.option.gpus) == (Action.SHRINK, 1)
    assert (resizer.option.gpus, resizer.last_change(2)["cause"]) == (2, "")
    assert "not done" in notes[0]


def test_a_run_that_opened_at_its_likely_size_grows_up_to_its_reserve_from_the_first_look_on(tmp_path):
    resizer, job, totals = recorded(tmp_path, Mode.AUTO, interval_s=5520)
    limits = resizer.inputs(totals, job, now_s=305.0)[2]
    assert (limits.max_gpus, limits.look_s) == (None, None)
    resizer.reserve_gpus = 3
    limits = resizer.inputs(totals, job, now_s=305.0)[2]
    assert (limits.max_gpus, limits.look_s) == (3, 70.0)


def test_a_window_spans_two_of_the_longest_automatic_checkpoint_intervals(tmp_path):
    resizer, job, totals = recorded(tmp_path, Mode.AUTO, now_s=14_405.0, interval_s=5520, steps=14_400)
    reading, *_ = resizer.inputs(totals, job, now_s=14_405.0)
    assert reading.window_s == 2 * 5520.0
    assert resizer.look(totals, job).workers == 1


@pytest.mark.parametrize("change", ["too-soon", "older-attempt"])
def test_a_run_is_judged_every_two_seconds_by_the_records_of_its_own_attempt(tmp_path, change):
    resizer, job, totals = recorded(tmp_path, Mode.AUTO)
    if change == "too-soon":
        resizer.look(RunTotals(attempt=1), job)
    else:
        job = replace(job, attempt=2)
    assert resizer.look(totals, job) is None
    assert resizer.decision is None


def test_a_size_warms_up_for_half_of_the_time_that_it_is_given_and_is_kept_for_six_times_that():
    tuning = tuning_of(settle_s=120.0)
    assert (tuning.warm_up_s, tuning.least_window_s, tuning.cool_down_s) == (60.0, 60.0, 720.0)
    assert (tuning.cap, tuning.pressure) == (Mode.AUTO, Pressure.ALWAYS)
