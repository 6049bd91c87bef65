"""Twelve hours of the monitor with the shipped intervals, on a simulated clock and cluster.

The checkpoint interval is 92 minutes, the longest that `interval: auto` gives for a large plan, so that a
shrink needs a window of 184 minutes. Steps take about two seconds.
"""

import json
import os
from dataclasses import dataclass, field, replace

import pytest

from rightsizer_engine.resize.types import Action
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode
from rightsizer_slurm.monitor.intent_log import IntentLog, IntentStage, Kind
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.settings import options_of

pytestmark = pytest.mark.slow

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {name: gpt2-xl}
  workload: {tokens: TOKENS, sequenceLength: 1024, globalBatchSequences: 192}
  deadline: {finishWithin: HOURSh}
  resources: {maxGPUs: 4}
  launch: {framework: ddp, command: [train.py], checkpoint: {path: ckpt}}
  elasticity: {mode: Auto, minGPUs: 1}
"""
HOUR_S, BATCH_TOKENS, INTERVAL_S = 3600.0, 192 * 1024, 92 * 60.0
NEEDED_TOKENS_PER_S = 100_000.0
RATES = {1: 0.27, 2: 0.53, 3: 0.78, 4: 1.0}
"""Of a job on so many nodes; on four it is `pace` times as fast as it needs to be."""
START_S, START_UP_S = 1.7e9, 60.0


@dataclass
class Simulated:
    """A cluster whose one job trains, saves, is requeued at another size, and writes its records."""

    folder: object
    pace: float
    tokens: float
    job: SlurmJob
    now_s: float = START_S
    pressed_from_s: float = float("inf")
    set_by_s: float = 0.0
    stopped: bool = False
    step: int = 0
    begins_s: float = START_S + START_UP_S
    saved_s: float = START_S
    first_save_s: float = 1e9
    sizes: list = field(default_factory=list)

    def clock_s(self, at_s=None):
        """The machines' clock, which is set by `set_by_s` after five hours."""
        at_s = self.now_s if at_s is None else at_s
        return at_s + (self.set_by_s if at_s >= START_S + 5 * HOUR_S else 0.0)

    def write(self, event, at_s, **more):
        line = {
            "event": event, "time": self.clock_s(at_s),
            "uptime_s": at_s - START_S + 1.0, "attempt": self.job.restarts + 1, "restart": len(self.sizes),
            "world": self.job.nodes, "step": self.step, "tokens": float(self.step * BATCH_TOKENS),
            "loss": 2.5, "tokens_per_s": 123456.789, "peak_bytes": 51234567890.0, **more,
        }  # fmt: skip
        with (self.folder / "progress.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def train(self, until_s):
        """The steps until then."""
        step_s = BATCH_TOKENS / (NEEDED_TOKENS_PER_S * self.pace * RATES[self.job.nodes])
        while not self.stopped and self.begins_s + step_s <= until_s:
            if self.step * BATCH_TOKENS >= self.tokens:
                self.stopped, self.job = True, replace(self.job, states=("COMPLETED",))
                break
            self.begins_s += step_s
            self.step += 1
            self.write("step", self.begins_s, step_s=step_s)
            if self.begins_s - self.saved_s >= min(INTERVAL_S, self.first_save_s):
                self.first_save_s = INTERVAL_S
                self.begins_s += 20.0
                self.save()
        self.now_s = until_s

    def save(self):
        self.saved_s = self.begins_s
        self.write("checkpoint", self.begins_s, path="ckpt")

    def starts(self, **change):
        self.job = replace(self.job, **change)
        self.sizes.append(self.job.nodes)
        self.begins_s, self.stopped = self.now_s + START_UP_S, False
        self.write("start", self.begins_s)

    def jobs(self):
        waiting = SlurmJob(
            job_id=8, user="eve", states=("PENDING",), reason="Resources", partition="h100", gpus=1,
            priority=9, gpu_type="h100",
        )  # fmt: skip
        return (self.job, waiting) if self.now_s >= self.pressed_from_s else (self.job,)

    def cluster(self):
        nodes = tuple(SlurmNode(name=f"n{i}", gpu="h100", gpus=1) for i in range(8))
        return SlurmCluster(
            partitions=(Partition(name="h100", nodes=tuple(n.name for n in nodes)),), nodes=nodes
        )

    def shrink(self, _job_id, *, nodes):
        self.save()
        self.starts(nodes=nodes)

    def signal_script(self, _job_id, _name):
        self.save()
        self.stopped = True
        self.job = replace(self.job, states=("PENDING",), priority=0)

    def resize(self, _job_id, *, nodes, tasks, cpus):
        self.job = replace(self.job, nodes=nodes, gpus=nodes)

    def release(self, _job_id):
        self.starts(states=("RUNNING",), priority=1, restarts=self.job.restarts + 1)

    def notify(self, _job_id, _text):
        """No terminal waits."""


@pytest.fixture
def simulated(tmp_path):
    """A job of so many nodes that trains at `pace` times the pace that it needs, on four nodes."""

    def make(*, nodes, pace, first_look_s=None, hours=100, **more):
        tokens = NEEDED_TOKENS_PER_S * hours * HOUR_S
        layout = {"dp": nodes, "microBatch": 8, "microBatches": 24 // nodes, "sharding": "none"}
        (tmp_path / "plan.yaml").write_text(
            PLAN.replace("TOKENS", f"{tokens:.0f}").replace("HOURS", f"{hours}")
        )
        runfile.write(tmp_path, runfile.RunFile(
            job_id=7, gpu="H100-SXM5-80GB", gres="h100", nodes=nodes, elastic=True, most_nodes=4,
            layout=layout, batch_sequences=192, batch_tokens=float(BATCH_TOKENS), step_s=2.0,
            checkpoint_interval_s=INTERVAL_S, submitted_at_s=START_S, deadline_at_s=START_S + hours * HOUR_S,
            first_look_s=first_look_s,
        ))  # fmt: skip
        job = SlurmJob(
            job_id=7, user="ada", user_id=os.getuid(), states=("RUNNING",), partition="h100", nodes=nodes,
            gpus=nodes, requeue=True, priority=1, comment=f"rightsizer: plan=/p.yaml run={tmp_path}",
        )  # fmt: skip
        cluster = Simulated(
            folder=tmp_path, pace=pace, tokens=tokens, job=job, first_save_s=(first_look_s or 1e9) / 2, **more
        )
        cluster.write("start", cluster.begins_s)
        return cluster

    return make


def watched(cluster, *, act="requeue", hours=12):
    """The decisions of twelve hours, each with its hour, and the resizes that came of them."""
    settings = options_of({"act": act}, state=cluster.folder / "state.db").settings
    assert (settings.every_s, settings.tuning.warm_up_s, settings.tuning.cool_down_s) == (30.0, 600.0, 3600.0)
    log = IntentLog(":memory:", clock=cluster.clock_s)
    monitor = Monitor(cluster, log, settings, slurm=Slurm(folder=cluster.folder), clock=cluster.clock_s)
    decisions = []
    for poll in range(1, int(hours * HOUR_S / settings.every_s) + 1):
        cluster.train(START_S + poll * settings.every_s)
        row = next(iter(monitor.sweep()), None)
        if row is None:
            break
        if row.decision.action is not Action.KEEP:
            decisions.append(((cluster.now_s - START_S) / HOUR_S, row.decision))
    return decisions, log.of_job(7)


def test_a_late_job_is_requeued_at_a_larger_size_within_the_hour(simulated):
    cluster = simulated(nodes=2, pace=1.3)
    decisions, resizes = watched(cluster, hours=4)
    assert [(r.from_nodes, r.to_nodes, r.stage) for r in resizes] == [(2, 4, IntentStage.DONE)]
    assert decisions[0][0] < 1.0, "growing needs half an hour after the warm-up"


def test_a_job_that_opened_small_and_is_late_grows_once_at_the_first_look(simulated):
    cluster = simulated(nodes=2, pace=1.3, first_look_s=1200.0)
    _, resizes = watched(cluster, hours=4)
    assert [(r.from_nodes, r.to_nodes, r.stage) for r in resizes] == [(2, 4, IntentStage.DONE)]
    assert 1200.0 <= resizes[0].began_s - START_S < 1500.0


def test_a_job_that_opened_small_grows_once_and_ends_before_its_deadline(simulated):
    cluster = simulated(nodes=2, pace=1.3, first_look_s=1200.0, hours=10)
    _, resizes = watched(cluster, hours=12)
    assert [(r.from_nodes, r.to_nodes, r.stage) for r in resizes] == [(2, 4, IntentStage.DONE)]
    assert (cluster.job.state, cluster.begins_s < START_S + 10 * HOUR_S) == ("COMPLETED", True)


def test_an_early_job_is_recommended_a_smaller_size_and_shrinks_once_others_wait(simulated):
    cluster = simulated(nodes=4, pace=2.6, pressed_from_s=START_S + 6 * HOUR_S)
    decisions, resizes = watched(cluster)
    first_hour, first = decisions[0]
    assert (first.action, first.withheld) == (Action.SHRINK, "no other job waits for GPUs")
    assert 3.0 < first_hour < 3.5, "shrinking needs two checkpoint intervals"
    assert [(r.from_nodes, r.to_nodes, r.stage) for r in resizes] == [(4, 2, IntentStage.DONE)]
    assert 6.0 <= (resizes[0].began_s - START_S) / HOUR_S < 6.1


def test_a_job_without_a_deadline_takes_idle_nodes_and_returns_them_to_a_waiting_job(simulated, tmp_path):
    cluster = simulated(nodes=2, pace=1.0, hours=20, pressed_from_s=START_S + 4 * HOUR_S)
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan.read_text().replace("  deadline: {finishWithin: 20h}\n", ""))
    runfile.write(tmp_path, replace(runfile.read(tmp_path), deadline_at_s=None))
    _, resizes = watched(cluster, hours=5)
    assert [(r.kind, r.from_nodes, r.to_nodes) for r in resizes] == [
        (Kind.REQUEUE, 2, 4),
        (Kind.SHRINK, 4, 2),
    ]
    assert resizes[1].began_s - START_S < 4 * HOUR_S + 60.0


def test_a_steady_job_is_never_resized(simulated):
    cluster = simulated(nodes=4, pace=1.15, pressed_from_s=START_S)
    assert watched(cluster) == ([], ())


@pytest.mark.parametrize(
    ("nodes", "pace", "set_by_h", "hours"),
    [(2, 2.3, 1, 6), (4, 1.15, -5, 10)],
    ids=["forwards: it seems late", "back: it seems early"],
)
def test_a_clock_that_is_set_resizes_no_job(simulated, nodes, pace, set_by_h, hours):
    cluster = simulated(nodes=nodes, pace=pace, pressed_from_s=START_S, set_by_s=set_by_h * HOUR_S)
    assert watched(cluster, hours=hours)[1] == ()
