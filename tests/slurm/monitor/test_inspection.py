"""The monitor reads only files of the job's own user; its actions stay within the level."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rightsizer_api import sizing
from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import Action, Decision, JobSize, Mode, Running
from rightsizer_launch.running.limits import Tuning
from rightsizer_launch.running.marks import marks_of
from rightsizer_launch.running.readings import reading_of
from rightsizer_launch.worker.progress import Record
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.comment import parse
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode
from rightsizer_slurm.monitor.decide import (
    NodeScaling,
    ReportRow,
    free_gpus,
    history,
    margin_s,
    others_wait,
    policy_inputs,
    scaling_of,
)
from rightsizer_slurm.monitor.inspection import monitored_job
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.intents import intent_for
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.monitor.settings import ActionLevel

LAYOUT = {
    "dp": 4,
    "microBatch": 4,
    "microBatches": 4,
    "sharding": "none",
    "recompute": "none",
    "offload": "none",
}
RUN = runfile.RunFile(
    job_id=7, gpu="H100-SXM5-80GB", gres="h100", nodes=4, node_gpus=1, node_cores=8, elastic=True,
    fewest_nodes=1, most_nodes=4, layout=LAYOUT, batch_sequences=64, batch_tokens=8192.0,
    checkpoint_interval_s=300.0,
)  # fmt: skip
NOW_S = 1_000_000.0


def record(event, at_s, step, *, world=4):
    return Record(
        event=event, time=NOW_S - at_s, world=world, step=step, tokens=8192.0 * step,
        step_s=10.0 * (event == "step"),
    )  # fmt: skip


RECORDS = [
    record("start", 2000, 0),
    *(record("step", 2000 - 10 * i, i) for i in range(1, 200)),
    record("checkpoint", 5, 199),
]


@pytest.fixture
def job(tmp_path, small_plan):
    (tmp_path / "plan.yaml").write_text(small_plan)
    runfile.write(tmp_path, RUN)
    names = ("event", "time", "world", "step", "tokens", "step_s")
    lines = [{name: getattr(each, name) for name in names} for each in RECORDS]
    (tmp_path / "progress.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return SlurmJob(
        job_id=7, user="ada", user_id=os.getuid(), states=("RUNNING",), partition="h100", nodes=4, gpus=4,
        requeue=True, comment=f"rightsizer: plan=/p.yaml run={tmp_path}",
    )  # fmt: skip


def test_a_job_s_own_directory_names_its_plan(job):
    monitored = monitored_job(job)
    assert monitored.ours
    assert monitored.plan.metadata.name == "small"
    assert (monitored.marks[0].step, monitored.marks[-1].step) == (1, 199)


def test_a_plan_is_resolved_once_in_all_sweeps(job):
    resolved = []

    def count(frame, event, _arg):
        if event == "call" and frame.f_code is sizing.resolve.__code__:
            resolved.append(1)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in range(2):
            decided(job)
    finally:
        sys.setprofile(before)
    assert len(resolved) == 1


def test_a_plan_that_cannot_be_resolved_is_named(job):
    plan = Path(parse(job.comment).run) / "plan.yaml"
    plan.write_text(plan.read_text().replace("framework: ddp", "framework: no-such"))
    monitored = monitored_job(job)
    assert (monitored.ours, "no-such" in monitored.note) == (False, True), monitored.note


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"comment": ""}, ""),
        ({"comment": "rightsizer: model=gpt2 tokens=1B"}, "not submitted by rightsizer sbatch"),
        ({"comment": "rightsizer: modle=gpt2"}, "did you mean model"),
        ({"user_id": 12345}, "no plan.yaml"),
        ({"job_id": 8}, "directory of another job"),
    ],
    ids=["foreign", "sized by comment", "wrong comment", "another's files", "another job's run"],
)
def test_another_job_s_run_is_not_watched(job, change, note):
    monitored = monitored_job(replace(job, **change))
    assert not monitored.ours
    assert note in monitored.note


@pytest.mark.parametrize("name", ["plan.yaml", "slurm.json"])
def test_nonsense_in_a_run_directory_is_a_note(job, tmp_path, name):
    (tmp_path / name).write_text("{")
    assert not monitored_job(job).ours
    assert monitored_job(job).note


def test_a_pipe_or_a_link_to_another_s_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/proc/self/environ")
    assert runfile.text_of(tmp_path / "pipe", owner=os.getuid()) is None
    assert runfile.text_of(tmp_path / "link", owner=os.getuid() + 1) is None


CLUSTER = SlurmCluster(
    partitions=(Partition(name="h100", nodes=("n1", "n2")),),
    nodes=(
        SlurmNode(name="n1", gpu="h100", gpus=8, gpus_used=7),
        SlurmNode(name="n2", gpu="h100", gpus=8, up=False),
    ),
)


READING = reading_of(marks_of(RECORDS), now_s=NOW_S, window_s=1200.0, warm_up_s=1.0)


def decided(job, *, cap=Mode.AUTO, waiting=True, reading=None):
    monitored = monitored_job(job)
    monitored = (
        replace(monitored, run=replace(monitored.run, deadline_at_s=NOW_S + 360_000.0))
        if monitored.run
        else monitored
    )
    reading = reading or READING
    tuning = Tuning(cap=cap, warm_up_s=1.0, least_window_s=600.0)
    running, limits = policy_inputs(
        monitored, reading, scaling=scaling_of(monitored) if monitored.ours else None, tuning=tuning,
        cluster=CLUSTER, waiting=waiting, now_s=NOW_S,
    )  # fmt: skip
    return monitored, reading, decide(reading, running, limits, history((), 1), now_s=NOW_S)


def fast(job):
    """So fast that it would be done long before its deadline on half the GPUs."""
    reading = replace(READING, tokens_per_s=200_000.0)
    return decided(job, reading=reading)


def test_a_job_far_ahead_of_its_deadline_gives_gpus_to_waiting_jobs(job):
    monitored, reading, made = fast(job)
    assert (made.action, made.act) == (Action.SHRINK, True), made.reason
    row = ReportRow(monitored=monitored, reading=reading, decision=made)
    intent = intent_for(row, ActionLevel.SHRINK)
    assert intent is not None
    assert (intent.kind, intent.from_nodes, intent.to_nodes) == (Kind.SHRINK, 4, made.gpus)


def test_a_size_that_the_plan_fixes_is_not_changed(job, tmp_path, small_plan):
    (tmp_path / "plan.yaml").write_text(small_plan.replace("{minGPUs: 1, maxGPUs: 4}", "{gpus: 4}"))
    _, _, made = fast(job)
    assert (made.action, made.gpus) == (Action.KEEP, 4), made.reason


@pytest.mark.parametrize(
    ("action", "level", "kind"),
    [
        (Action.SHRINK, ActionLevel.FLAG, None),
        (Action.SHRINK, ActionLevel.MAIL, None),
        (Action.SHRINK, ActionLevel.REQUEUE, Kind.SHRINK),
        (Action.GROW, ActionLevel.SHRINK, None),
        (Action.GROW, ActionLevel.REQUEUE, Kind.REQUEUE),
        (Action.FLAG, ActionLevel.REQUEUE, None),
        (Action.RELAYOUT, ActionLevel.REQUEUE, None),
    ],
    ids=str,
)
def test_no_more_is_done_than_the_level_allows(job, action, level, kind):
    gpus = 2 if action is Action.SHRINK else 8
    made = Decision(action=action, gpus=gpus, act=True, reason="because")
    row = ReportRow(monitored=monitored_job(job), reading=Reading(checkpoint_age_s=5.0), decision=made)
    intent = intent_for(row, level)
    assert (intent.kind if intent else None) == kind


@pytest.mark.parametrize(
    ("change", "reading"),
    [({"requeue": False}, Reading(checkpoint_age_s=5.0)), ({}, Reading())],
    ids=["not requeueable", "no checkpoint seen"],
)
def test_a_job_that_would_start_over_is_not_requeued(job, change, reading):
    made = Decision(action=Action.GROW, gpus=8, act=True, reason="late")
    row = ReportRow(monitored=monitored_job(replace(job, **change)), reading=reading, decision=made)
    assert intent_for(row, ActionLevel.REQUEUE) is None


@pytest.mark.parametrize("lost", ["run", "resolved"])
def test_a_job_whose_run_or_plan_is_not_known_has_its_gpus_alone(job, lost):
    running, limits = policy_inputs(
        replace(monitored_job(job), **{lost: None}), READING, scaling=None, tuning=Tuning(cap=Mode.AUTO),
        cluster=CLUSTER, waiting=True, now_s=NOW_S,
    )  # fmt: skip
    assert (running, limits.cap) == (Running(gpus=job.gpus), Mode.AUTO)


def test_a_foreign_job_is_flagged_at_most(job):
    idle = Reading(
        window_s=1800.0,
        age_s=5.0,
        coverage=1.0,
        samples=60,
        gpu_busy_mean=0.0,
        gpu_busy_max=0.0,
        power_fraction=0.1,
    )
    monitored, reading, made = decided(replace(job, comment=""), reading=idle)
    assert made.action is Action.FLAG
    assert (
        intent_for(ReportRow(monitored=monitored, reading=reading, decision=made), ActionLevel.REQUEUE)
        is None
    )


def test_free_gpus_are_those_of_whole_shares_on_nodes_that_are_up(job):
    assert free_gpus(CLUSTER, job, "h100", 1) == 1
    assert free_gpus(CLUSTER, job, "h100", 8) == 0


def test_others_wait_only_where_gpus_are_what_they_lack(job):
    waiting = replace(job, job_id=9, states=("PENDING",), reason="Resources", priority=5)
    assert others_wait((job, waiting), job)
    assert not others_wait((job, replace(waiting, reason="Dependency")), job)
    assert not others_wait((job, replace(waiting, partition="a100")), job)
    assert not others_wait((job, replace(waiting, priority=0, reason="JobHeldUser")), job)


class EverySize:
    """A job that can have any number of GPUs up to 80, in place."""

    def sizes(self, *, gpus, tokens_per_s, steps):
        return tuple(JobSize(gpus=n, tokens_per_s=tokens_per_s, in_place=True) for n in range(1, 81))


def test_a_job_whose_stack_cannot_resume_keeps_its_nodes(job, tmp_path, small_plan):
    (tmp_path / "plan.yaml").write_text(small_plan.replace("framework: ddp", "framework: megatron"))
    _, _, made = fast(job)
    assert (made.action, made.act) == (Action.KEEP, False), made.reason


def test_slurm_offers_whole_nodes_from_the_fewest_to_the_most():
    scaling = NodeScaling(EverySize(), node_gpus=8, fewest=2, most=4)
    assert [size.gpus for size in scaling.sizes(gpus=24, tokens_per_s=1.0, steps=1)] == [16, 24, 32]


def test_a_job_of_two_gpus_a_node_has_twice_as_many_ranks_as_nodes(job):
    monitored = monitored_job(job)
    running, _ = policy_inputs(
        replace(monitored, run=replace(monitored.run, node_gpus=2)), READING, scaling=None, tuning=Tuning(),
        cluster=CLUSTER, waiting=True, now_s=NOW_S,
    )  # fmt: skip
    assert (running.gpus, running.layout.dp) == (2 * job.nodes, 2 * job.nodes)


@pytest.mark.parametrize(
    ("stage", "attempts", "counts"),
    [
        (IntentStage.PLANNED, 0, False),
        (IntentStage.PLANNED, 1, True),
        (IntentStage.DONE, 0, True),
        (IntentStage.FAILED, 0, True),
    ],
)
def test_a_resize_counts_once_it_was_requested_or_has_ended(stage, attempts, counts):
    intent = Intent(
        job_id=7, kind=Kind.SHRINK, from_nodes=4, to_nodes=2, node_cores=8, restarts=0, attempts=attempts,
        began_s=5.0, stage=stage,
    )  # fmt: skip
    assert (history((intent,), 8).last_resize_s == 5.0) is counts


def test_the_history_equals_the_journal():
    base = Intent(
        job_id=7,
        kind=Kind.SHRINK,
        from_nodes=4,
        to_nodes=2,
        node_cores=8,
        restarts=0,
        attempts=1,
        began_s=5.0,
    )
    done = history(
        (
            replace(base, stage=IntentStage.DONE),
            replace(base, stage=IntentStage.FAILED, to_nodes=8, began_s=9.0),
        ),
        8,
    )
    assert (done.last_resize_s, done.failed_gpus, done.first_gpus) == (9.0, (64,), 32)


HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("done", "rate", "hours"),
    [(1e9, 1e5, 75.0), (1e9, 2e4, -25.0), (10e9, 2e4, 100.0), (1e9, None, 100.0 - 9e9 / 409.6 / 3600)],
    ids=["in time", "late", "done", "as predicted"],
)
def test_the_margin_is_the_deadline_minus_the_remaining_time(job, done, rate, hours):
    monitored = monitored_job(job)
    monitored = replace(
        monitored, run=replace(monitored.run, deadline_at_s=NOW_S + 100 * HOUR_S, step_s=20.0)
    )
    reading = Reading(tokens_done=done, tokens_per_s=rate)
    margin = margin_s(monitored, reading, now_s=NOW_S)
    assert margin == pytest.approx(hours * HOUR_S)
    made = Decision(action=Action.KEEP, gpus=4, act=False, reason="because")
    metrics = SweepMetrics(cluster="lab")
    metrics.swept(
        [ReportRow(monitored=monitored, reading=reading, decision=made, margin_s=margin)],
        [],
        at_s=NOW_S,
        took_s=0.1,
    )
    labels = {"cluster": "lab", "jobid": "7"}
    assert metrics.registry.get_sample_value("rightsizer_slurm_job_margin_seconds", labels) == margin


@pytest.mark.parametrize(
    "change", [{"states": ("PENDING",)}, {"comment": ""}], ids=["waits", "is nobody's plan"]
)
def test_a_job_without_a_known_end_has_no_margin(job, change):
    monitored = monitored_job(replace(job, **change))
    reading = Reading(tokens_done=1e9, tokens_per_s=1e5)
    made = Decision(action=Action.KEEP, gpus=4, act=False, reason="because")
    metrics = SweepMetrics(cluster="lab")
    row = ReportRow(
        monitored=monitored,
        reading=reading,
        decision=made,
        margin_s=margin_s(monitored, reading, now_s=NOW_S),
    )
    metrics.swept([row], [], at_s=NOW_S, took_s=0.1)
    labels = {"cluster": "lab", "jobid": "7"}
    assert metrics.registry.get_sample_value("rightsizer_slurm_job_margin_seconds", labels) is None
    assert metrics.registry.get_sample_value("rightsizer_slurm_job_gpus", labels) is not None


def test_jobs_without_a_size_are_counted(job):
    keep = Decision(action=Action.KEEP, gpus=4, act=False, reason="because")
    sized = replace(job, comment="", admin_comment="[rightsizer/1 nodes=4 gpus=4]")
    jobs = (job, sized, replace(job, comment=""), replace(job, comment="", admin_comment="[rightsizer/1 x]"))
    metrics = SweepMetrics(cluster="lab", verdicts={"OK": 3})
    rows = [ReportRow(monitored=monitored_job(each), reading=Reading(), decision=keep) for each in jobs]
    metrics.swept(rows, [], at_s=NOW_S, took_s=0.1)
    assert metrics.registry.get_sample_value("rightsizer_slurm_unsized_jobs", {"cluster": "lab"}) == 2
    assert metrics.registry.get_sample_value("rightsizer_slurm_requests_total", {"verdict": "OK"}) == 3
