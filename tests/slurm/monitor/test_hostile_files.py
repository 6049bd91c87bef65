"""Whatever a user writes into a run directory, the sweep goes on, and their neighbour's job is unaffected."""

import json
import math
import os

import pytest

from rightsizer_engine.domain.reading import Reading
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.monitor.intent_log import IntentLog
from rightsizer_slurm.monitor.metrics import SweepMetrics
from rightsizer_slurm.monitor.monitor import Monitor
from rightsizer_slurm.monitor.report import JobsReport, document, table_row
from rightsizer_slurm.monitor.settings import MonitorSettings

LAYOUT = {"dp": 1, "microBatch": 4, "microBatches": 16, "sharding": "none"}
RUN = {
    "job_id": 7, "gpu": "H100-SXM5-80GB", "gres": "h100", "nodes": 1, "node_gpus": 1, "node_cores": 8,
    "elastic": True, "fewest_nodes": 1, "most_nodes": 4, "layout": LAYOUT, "batch_sequences": 64,
    "batch_tokens": 8192.0, "step_s": 1.0, "deadline_at_s": 2e9,
}  # fmt: skip
STEP = {"event": "step", "time": 1e9, "world": 1, "step": 1, "tokens": 8192.0, "step_s": 1.0}
DEEP = "[" * 100_000
RUNS = {
    "a text as count": {"nodes": "four"},
    "no GPUs": {"node_gpus": 0},
    "a list as layout": {"layout": [1]},
    "texts in the layout": {"layout": {"dp": "x", "tp": "y"}},
    "a layout of no GPUs": {"layout": {"dp": 0, "tp": 0}},
    "a layout of 2**80 GPUs": {"layout": dict.fromkeys(("dp", "tp", "pp", "cp"), 2**20)},
    "an unknown sharding": {"layout": {"sharding": "sideways"}},
    "a text as deadline": {"deadline_at_s": "soon"},
    "not a number": {"batch_tokens": math.nan, "step_s": math.nan},
    "a list as GPU": {"gpu": ["x"]},
    "an unknown GPU": {"gpu": "\x1b]52;c;cHduZWQ=\x07"},
    "a number of 300 digits": {"nodes": 10**300, "batch_sequences": 10**300},
    "a number where true belongs": {"elastic": 1},
}
LINES = {
    "nested": DEEP,
    "a number of 400 digits": json.dumps(STEP | {"tokens": 10**400}),
    "a list as attempt": json.dumps(STEP | {"attempt": [1]}),
    "not a number": json.dumps(STEP | {"time": math.nan}),
    "a list as event": json.dumps(STEP | {"event": []}),
    "a number as pids": json.dumps(STEP | {"pids": 5}),
}
SIZES = {"nested": DEEP, "a list as event": json.dumps({"event": [], "job_id": 7, "restart": 0, "nodes": 1})}


def job(folder, number, plan):
    folder.mkdir()
    (folder / "plan.yaml").write_text(plan)
    (folder / "slurm.json").write_text(json.dumps(RUN | {"job_id": number}))
    (folder / "progress.jsonl").write_text(json.dumps(STEP) + "\n")
    return SlurmJob(
        job_id=number, user="ada", user_id=os.getuid(), states=("RUNNING",), partition="h100", nodes=1,
        gpus=1, comment=f"rightsizer: plan=/p.yaml run={folder}",
    )  # fmt: skip


class Two:
    """A cluster with the job of a hostile user and that of their neighbour."""

    def __init__(self, folder, plan):
        self.hostile, self.folder = job(folder / "hostile", 7, plan), folder / "hostile"
        self.neighbour = job(folder / "neighbour", 8, plan)

    def jobs(self):
        return (self.hostile, self.neighbour)

    def cluster(self):
        return SlurmCluster(partitions=(), nodes=())


@pytest.fixture
def two(tmp_path, small_plan):
    return Two(tmp_path, small_plan)


def swept(two, **given):
    """The rows of one sweep, after everything that is made from them."""
    rows = Monitor(two, IntentLog(":memory:"), MonitorSettings(), **given).sweep()
    metrics = SweepMetrics(cluster="lab")
    metrics.swept(rows, (), at_s=1.0, took_s=1.0)
    list(metrics.collect())
    document(JobsReport(rows=rows)).model_dump_json()
    assert [table_row(row)[0] for row in rows] == ["7", "8"]
    assert (rows[1].monitored.ours, rows[1].reading.steps) == (True, 1)
    return rows


@pytest.mark.parametrize("change", RUNS.values(), ids=RUNS)
def test_a_hostile_slurm_json_is_a_note_on_its_own_job(two, change):
    (two.folder / "slurm.json").write_text(json.dumps(RUN | change))
    swept(two)


@pytest.mark.parametrize(
    "text", [DEEP, "[1]", '"x"', "", "\x00"], ids=["deep", "list", "text", "empty", "nul"]
)
@pytest.mark.parametrize("name", ["slurm.json", "plan.yaml"])
def test_a_file_that_is_no_record_is_a_note_on_its_own_job(two, name, text):
    (two.folder / name).write_text(text)
    assert swept(two)[0].monitored.note


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_hostile_record_is_skipped(two, line):
    (two.folder / "progress.jsonl").write_text(f"{line}\n{json.dumps(STEP | {'step': 2})}\n")
    assert swept(two)[0].reading.steps == 2


@pytest.mark.parametrize("line", SIZES.values(), ids=SIZES)
def test_a_hostile_size_history_is_skipped(two, line):
    (two.folder / "sizes.jsonl").write_text(line + "\n")
    assert swept(two)[0].monitored.given_up == ()


def test_a_fault_of_the_monitor_itself_stays_with_its_job(two):
    rows = swept(two, metrics=lambda _jobs: {7: "no reading"})
    assert (rows[0].reading, rows[0].monitored.note[:14]) == (Reading(), "internal error")
