"""One scenario, three executors: the same inputs of the resize policy and the same decision."""

import dataclasses
import datetime as dt
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rightsizer_api import sizing, validate
from rightsizer_api.quantities import format_time
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.resize.policy import decide
from rightsizer_engine.resize.types import JobSize, Mode, Pressure
from rightsizer_launch.running.limits import Tuning
from rightsizer_launch.running.marks import marks_of
from rightsizer_launch.running.run_totals import RunTotals
from rightsizer_launch.worker.progress import Record
from rightsizer_local.resize import LocalResizer, history_of_attempts
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.reconcile.resize_advice import advise, policy_inputs
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import ReportedProgress
from rightsizer_slurm.cluster import runfile
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode
from rightsizer_slurm.monitor import decide as slurm
from rightsizer_slurm.monitor.inspection import InspectedJob
from rightsizer_slurm.monitor.intent_log import Intent, IntentStage, Kind
from rightsizer_slurm.monitor.size_records import SizeRecord

ZERO_S = 1_700_000_000.0
SCRAPE_S = 15.0
MONOTONIC_S = 1_699_000_000.0  # the operator's monotonic clock began then
LAYOUT = {"dp": 2, "microBatch": 4, "sharding": "none", "recompute": "none", "offload": "none"}
SIZING = {
    "gpus": 2,
    "nodes": 1,
    "gpuType": "H100-SXM5-80GB",
    "layout": LAYOUT,
    "globalBatchSequences": 64,
    "stepSeconds": 1.0,
    "finishSeconds": 1.0,
    "checkpointIntervalSeconds": 300,
}
PLAN = {
    "apiVersion": "rightsizer.dev/v1alpha1",
    "kind": "TrainingPlan",
    "metadata": {"name": "demo", "namespace": "team"},
    "spec": {
        "model": {"dimensions": {"layers": 4, "hidden": 192, "heads": 4, "vocab": 256}},
        "workload": {"tokens": "10B", "sequenceLength": 128, "globalBatchSequences": 64},
        "deadline": {"finishWithin": "100h"},
        "resources": {"minGPUs": 1, "maxGPUs": 4},
        "launch": {
            "framework": "ddp",
            "image": "ghcr.io/acme/train:1",
            "command": ["train.py"],
            "checkpoint": {"path": "ckpt", "interval": "5m"},
        },
        "elasticity": {"mode": "Auto", "minGPUs": 1},
    },
}
TUNING = Tuning(cap=Mode.AUTO, pressure=Pressure.ALWAYS, warm_up_s=300.0, least_window_s=600.0)
SETTINGS = OperatorSettings(give_back=Pressure.ALWAYS, measure_s=SCRAPE_S)


FREE = SlurmCluster(
    partitions=(Partition(name="h100", nodes=("n1", "n2")),),
    nodes=tuple(SlurmNode(name=name, gpu="h100", gpus=8) for name in ("n1", "n2")),
)
NODE = {
    "metadata": {
        "name": "n1",
        "resourceVersion": "1",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    },
    "spec": {},
    "status": {
        "allocatable": {"nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class Sublinear:
    """Twice the GPUs, less than twice the rate."""

    def sizes(self, *, gpus, tokens_per_s, steps):
        return tuple(JobSize(gpus=n, tokens_per_s=tokens_per_s * (n / gpus) ** 0.7) for n in (1, 2, 4))


@dataclasses.dataclass
class Scenario:
    """Records from the first launch at 0; `silent` are times without records and scrapes.

    `changes`: (time, GPUs before, GPUs after, cause) of earlier resizes.
    """

    records: list
    action: str
    silent: tuple = ()
    changes: tuple = ()
    waited_s: float = 2.0
    deadline_s: float = 200_000.0

    @property
    def now_s(self):
        return self.records[-1].time + self.waited_s


def record(event, time_s, step, *, restart=0, step_s=0.0):
    return Record(
        event=event,
        time=ZERO_S + time_s,
        world=2,
        step=step,
        tokens=1e6 * step,
        step_s=step_s,
        restart=restart,
    )


def steps(first, last, *, began_s, step_s=5.0, restart=0):
    return [
        record("step", began_s + (n - first + 1) * step_s, n, step_s=step_s, restart=restart)
        for n in range(first, last + 1)
    ]


def saved(*, every, save_s):
    """Steps of 5 s with a save after `every` of them."""
    records, time_s = [record("start", 20.0, 0)], 20.0
    for first in range(1, 400, every):
        records += steps(first, first + every - 1, began_s=time_s)
        time_s += 5.0 * every + save_s
        records.append(record("checkpoint", time_s, first + every - 1))
    return [*records, *steps(records[-1].step + 1, records[-1].step + 4, began_s=time_s)]


START = record("start", 20.0, 0)
STEADY = [START, *steps(1, 400, began_s=20.0)]
SCENARIOS = {
    "steady": Scenario(STEADY, "shrink"),
    "slow-warm-up": Scenario(
        [START, *steps(1, 10, began_s=20.0, step_s=25.0), *steps(11, 200, began_s=270.0)], "shrink"
    ),
    "saves": Scenario(saved(every=50, save_s=45.0), "shrink"),
    "gap": Scenario(STEADY, "keep", silent=(1500.0, 1900.0)),
    "restart": Scenario(
        [*STEADY, record("start", 2060.0, 400, restart=1), *steps(401, 420, began_s=2060.0, restart=1)],
        "keep",
        silent=(2021.0, 2059.0),
    ),
    "shrunk-before": Scenario(STEADY, "keep", changes=((0.0, 4, 2, "Measured"),)),
    "late": Scenario(STEADY, "grow", deadline_s=40_000.0),
    "failed-growth": Scenario(
        STEADY, "flag", deadline_s=40_000.0, changes=((-4000.0, 2, 4, "Measured"), (-3900.0, 4, 2, "Failure"))
    ),
    "nothing-measured": Scenario([START], "keep", waited_s=200.0),
}


def seen(scenario):
    """The records that exist: none from the silent time."""
    low, high = scenario.silent or (0.0, 0.0)
    return [r for r in scenario.records if not low < r.time - ZERO_S <= high]


def local(scenario):
    records, now_s = seen(scenario), scenario.now_s
    first = scenario.changes[0][1] if scenario.changes else 2
    attempts = [{"workers": first, "startedAt": ZERO_S - 1e5, "cause": ""}] + [
        {"workers": after, "startedAt": ZERO_S + at_s, "cause": cause}
        for at_s, _, after, cause in scenario.changes
    ]
    resizer = LocalResizer(
        plan=validate(PLAN),
        option=SimpleNamespace(gpus=2, layout=Layout(dp=2, micro_batch=4)),
        tuning=TUNING,
        target_tokens=1e10,
        deadline_s=ZERO_S + scenario.deadline_s,
        scaling=lambda _option: Sublinear(),
        job=lambda option: option,
        history=history_of_attempts(attempts),
    )
    totals = RunTotals().add(records, launched_s={1: ZERO_S})
    spec = SimpleNamespace(attempt=1, environment={"RIGHTSIZER_CHECKPOINT_INTERVAL_S": "300"})
    inputs = resizer.inputs(totals, spec, now_s=now_s)
    return inputs, decide(*inputs, now_s=now_s)


def on_slurm(scenario):
    now_s = scenario.now_s
    intents = [
        Intent(
            job_id=7, kind=Kind.REQUEUE, from_nodes=before, to_nodes=after, node_cores=1, restarts=0,
            attempts=1, began_s=ZERO_S + at_s, stage=IntentStage.DONE,
        )
        for at_s, before, after, cause in scenario.changes
        if cause == "Measured"
    ]  # fmt: skip
    given_up = [
        SizeRecord(event="back", job_id=7, restart=1, nodes=before, to_nodes=after, time=ZERO_S + at_s)
        for at_s, before, after, cause in scenario.changes
        if cause == "Failure"
    ]
    run = runfile.RunFile(
        job_id=7, gpu="H100-SXM5-80GB", gres="h100", nodes=2, node_gpus=1, node_cores=1, elastic=True,
        fewest_nodes=1, most_nodes=4, layout=LAYOUT, batch_sequences=64, checkpoint_interval_s=300.0,
        deadline_at_s=ZERO_S + scenario.deadline_s,
    )  # fmt: skip
    monitored = InspectedJob(
        job=SlurmJob(job_id=7, states=("RUNNING",), partition="h100", nodes=2, gpus=2),
        resolved=sizing.resolve(validate(PLAN)),
        run=run,
        marks=marks_of(seen(scenario)),
        launches_s=(ZERO_S,),
    )
    reading = slurm.reading_for(monitored, None, tuning=TUNING, now_s=now_s)
    running, limits = slurm.policy_inputs(
        monitored, reading, scaling=Sublinear(), tuning=TUNING, cluster=FREE, waiting=True, now_s=now_s
    )
    inputs = (reading, running, limits, slurm.history(intents, 1, given_up, monitored.marks))
    return inputs, decide(*inputs, now_s=now_s)


def scrapes(scenario):
    """The report of rank 0 at each scrape."""
    at_s, saving_s, records = ZERO_S + SCRAPE_S, 0.0, [*scenario.records]
    last = None
    while at_s <= scenario.now_s:
        while records and records[0].time <= at_s:
            new = records.pop(0)
            saving_s += new.time - last.time if new.event == "checkpoint" else 0.0
            last = new
        low, high = (ZERO_S + t for t in scenario.silent or (0.0, 0.0))
        if last is not None and not low < at_s <= high:
            yield (
                at_s,
                ReportedProgress(
                    tokens=last.tokens,
                    tokens_per_s=1.0,
                    step=last.step,
                    restarts=last.restart,
                    workers=2,
                    phase="startup" if last.event == "start" else "training",
                    checkpoint_s=saving_s,
                ),
            )
        at_s += SCRAPE_S


def at(seconds):
    return format_time(dt.datetime.fromtimestamp(ZERO_S + seconds, dt.UTC))


def on_kubernetes(scenario):
    clock, captured = [ZERO_S - 1.0], []

    def spy(*args, **inputs):
        captured.append(policy_inputs(*args, **inputs))
        return advise(*args, **inputs)

    metadata = {
        "uid": "1", "generation": 1, "resourceVersion": "1", "creationTimestamp": "2023-11-14T00:00:00Z",
    }  # fmt: skip
    status = {
        "sizing": SIZING,
        "attempt": {"number": 1, "gpus": 2, "layout": LAYOUT, "startedAt": at(0.0)},
        "deadline": at(scenario.deadline_s),
        "resizes": [
            {"at": at(at_s), "fromGPUs": before, "toGPUs": after, "cause": cause}
            for at_s, before, after, cause in scenario.changes
        ],
    }
    plan = {**PLAN, "metadata": PLAN["metadata"] | metadata, "status": status}
    advisor = Advisor(
        SETTINGS,
        unix=lambda: clock[0],
        monotonic=lambda: clock[0] - MONOTONIC_S,
        scaling=lambda *_args, **_options: Sublinear(),
        advise=spy,
    )
    cache = Cache()
    cache.set_plan(plan)
    cache.set_node(NODE)
    for unix_s, progress in scrapes(scenario):
        clock[0] = unix_s
        advisor.record(plan, progress, at_s=unix_s - MONOTONIC_S)
    clock[0] = scenario.now_s
    work = advisor.due_work(("team", "demo"), cache, now_s=clock[0] - MONOTONIC_S)
    work()
    return captured[-1], advisor.decision(plan)


SAME_LIMITS = (
    "mode", "cap", "min_gpus", "max_gpus", "cool_down_s", "checkpoint_interval_s", "warm_up_s",
    "least_window_s", "pressure",
)  # fmt: skip


def assert_same_inputs(inputs, others):
    """Equal, up to what happens between two scrapes."""
    reading, running, limits, history = inputs
    own, other_running, other_limits, other_history = others
    assert replace(other_history, visited=()) == replace(history, visited=())
    assert [(v.gpus, v.layout) for v in other_history.visited] == [
        (v.gpus, v.layout) for v in history.visited
    ]
    assert [getattr(other_limits, n) for n in SAME_LIMITS] == [getattr(limits, n) for n in SAME_LIMITS]
    assert other_limits.restart_s == pytest.approx(limits.restart_s, abs=SCRAPE_S)
    assert (own.phase, own.gpus, own.window_s is None) == (
        reading.phase,
        reading.gpus,
        reading.window_s is None,
    )
    assert (other_running.gpus, other_running.layout) == (running.gpus, running.layout)
    assert other_running.deadline_left_s == pytest.approx(running.deadline_left_s)
    for name, tolerance in (("tokens_left", 3e6), ("trained_s", SCRAPE_S)):
        expected = getattr(running, name)
        same = expected if expected is None else pytest.approx(expected, abs=tolerance)
        assert getattr(other_running, name) == same
    if reading.window_s is not None:
        assert own.window_s == pytest.approx(reading.window_s, abs=3 * SCRAPE_S)
        assert own.tokens_per_s == pytest.approx(reading.tokens_per_s, rel=0.02)
        assert own.coverage == pytest.approx(reading.coverage, abs=0.05)
        assert own.checkpoint_fraction == pytest.approx(reading.checkpoint_fraction, abs=0.05)


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_executors_give_the_policy_the_same_inputs_and_get_the_same_decision(name):
    scenario = SCENARIOS[name]
    inputs, decision = local(scenario)
    assert decision.action == scenario.action, decision.reason
    for executor in (on_slurm, on_kubernetes):
        others, other = executor(scenario)
        assert_same_inputs(inputs, others)
        assert (other.action, other.gpus, other.act) == (decision.action, decision.gpus, decision.act)
