"""A plan may have its job suspended if its GPUs stay idle; all other idle jobs are only flagged."""

import json
import os
from dataclasses import dataclass, field, replace

import pytest

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.resize.types import Action
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.intent_log import Intent, IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.resize_steps import ResizeStep, next_step
from rightsizer_slurm.monitor.settings import ActionLevel, MonitorSettings

IDLE = Reading(
    window_s=600.0, age_s=5.0, coverage=1.0, samples=60, gpu_busy_mean=0.0, gpu_busy_max=0.0,
    power_fraction=0.1,
)  # fmt: skip
SUSPEND = "elasticity: {mode: Auto, minGPUs: 1, whenIdle: Suspend, idleGrace: 30m}"
START_S = 1.7e9


@dataclass
class Standing:
    """A cluster with one job, whose last step was an hour ago; it stops on request."""

    job: SlurmJob
    now_s: float = START_S
    reading: Reading | None = IDLE
    asked: list = field(default_factory=list)
    told: list = field(default_factory=list)

    def jobs(self):
        return (self.job,)

    def cluster(self):
        return SlurmCluster()

    def signal_script(self, job_id, name):
        self.asked.append((job_id, name))
        self.job = replace(self.job, states=("PENDING",), priority=0, restarts=1)

    def notify(self, _job_id, text):
        self.told.append(text)


@pytest.fixture
def standing(tmp_path, small_plan):
    """The job of a plan with this elasticity."""

    def make(elasticity=SUSPEND, **changes):
        (tmp_path / "plan.yaml").write_text(
            small_plan.replace("elasticity: {mode: Auto, minGPUs: 1}", elasticity)
        )
        layout = {"dp": 1, "microBatch": 4, "microBatches": 16, "sharding": "none"}
        runfile.write(
            tmp_path,
            runfile.RunFile(job_id=7, gpu="H100-SXM5-80GB", layout=layout, batch_sequences=64, elastic=True),
        )
        step = {"event": "step", "time": START_S - 3600.0, "step": 9, "tokens": 9.0, "step_s": 1.0}
        (tmp_path / "progress.jsonl").write_text(json.dumps(step) + "\n")
        job = SlurmJob(
            job_id=7, user="ada", user_id=os.getuid(), states=("RUNNING",), partition="h100", nodes=1, gpus=1,
            requeue=True, priority=1, comment=f"rightsizer: plan=/p.yaml run={tmp_path}",
        )  # fmt: skip
        return Standing(job=replace(job, **changes))

    return make


def watched(cluster, tmp_path, *, minutes, level=ActionLevel.REQUEUE, seen=lambda _minute: True):
    """The decisions of so many minutes, and the intents."""
    log = IntentLog(":memory:", clock=lambda: cluster.now_s)
    monitor = Monitor(
        cluster, log, MonitorSettings(level=level), slurm=Slurm(folder=tmp_path),
        metrics=lambda _jobs: {7: IDLE if seen((cluster.now_s - START_S) / 60) else Reading()},
        clock=lambda: cluster.now_s,
    )  # fmt: skip
    rows = []
    for look in range(2 * minutes + 1):
        cluster.now_s = START_S + 30.0 * look
        rows += monitor.sweep()
    return rows, log.of_job(7)


def test_an_idle_plan_is_warned_and_after_its_grace_time_saved_and_held(standing, tmp_path):
    cluster = standing()
    rows, intents = watched(cluster, tmp_path, minutes=29)
    assert (rows[0].decision.action, intents, cluster.asked) == (Action.FLAG, (), [])
    assert len(cluster.told) == 1
    assert "if it stays idle (elasticity.whenIdle); scontrol release continues it" in cluster.told[0]
    _, intents = watched(cluster, tmp_path, minutes=31)
    assert cluster.asked == [(7, "USR2")]
    assert [(each.kind, each.stage) for each in intents] == [(Kind.SUSPEND, IntentStage.DONE)]
    assert "for 30m" in intents[0].reason


@pytest.mark.parametrize(
    ("elasticity", "changes", "level"),
    [
        ("elasticity: {mode: Auto}", {}, ActionLevel.REQUEUE),
        (SUSPEND, {"comment": ""}, ActionLevel.REQUEUE),
        (SUSPEND, {"requeue": False}, ActionLevel.REQUEUE),
        (SUSPEND, {}, ActionLevel.SHRINK),
    ],
    ids=["not asked for", "foreign", "cannot be requeued", "not allowed by the site"],
)
def test_other_idle_jobs_are_only_flagged(standing, tmp_path, elasticity, changes, level):
    cluster = standing(elasticity, **changes)
    rows, intents = watched(cluster, tmp_path, minutes=60, level=level)
    assert {row.decision.action for row in rows} == {Action.FLAG}
    assert (intents, cluster.asked) == ((), [])


def test_a_missing_measurement_starts_the_time_again(standing, tmp_path):
    cluster = standing()
    _, intents = watched(cluster, tmp_path, minutes=50, seen=lambda minute: minute != 25)
    assert intents == ()


@pytest.mark.parametrize(
    ("job", "step", "stage"),
    [
        ({"states": ("RUNNING",)}, ResizeStep.WAIT, None),
        ({"states": ("RUNNING",), "restarts": 1}, ResizeStep.CLOSE, IntentStage.OVERTAKEN),
        ({"states": ("PENDING",), "priority": 5, "restarts": 1}, ResizeStep.WAIT, None),
        ({"states": ("PENDING",), "restarts": 1}, ResizeStep.CLOSE, IntentStage.DONE),
        ({"states": ("COMPLETED",)}, ResizeStep.CLOSE, IntentStage.OVERTAKEN),
    ],
    ids=["still stops", "released again", "not held yet", "held", "ended"],
)
def test_a_suspension_ends_once_its_job_is_held(job, step, stage):
    intent = Intent(
        job_id=7, kind=Kind.SUSPEND, from_nodes=1, to_nodes=1, node_cores=1, restarts=0,
        stage=IntentStage.ASKED, attempts=1,
    )  # fmt: skip
    found = next_step(intent, SlurmJob(job_id=7, nodes=1, **job), now_s=10.0)
    assert (found.step, found.stage) == (step, stage)
