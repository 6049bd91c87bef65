"""On a real Slurm: a user's own files, and what a job is called, reach neither other jobs nor a terminal."""

import json
import time
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 10B, sequenceLength: 128, globalBatchSequences: 64}
  resources: {minGPUs: 1, maxGPUs: 4}
  launch: {framework: ddp, command: [train.py]}
"""
ESCAPE = "\x1b]52;c;cHduZWQ=\x07\x9b31m\u202e"
LAYOUT = {"dp": 1, "microBatch": 4, "microBatches": 16, "sharding": "none"}
RUN = {
    "gpu": "H100-SXM5-80GB", "gres": "h100", "layout": LAYOUT, "batch_sequences": 64, "batch_tokens": 8192.0,
    "most_nodes": 2, "elastic": True,
}  # fmt: skip
STEP = {"event": "step", "time": time.time(), "step": 3, "tokens": 8192.0, "step_s": 1.0}
RUNS = {
    "count": RUN | {"nodes": "four"},
    "layout": RUN | {"layout": {"dp": ESCAPE}},
    "no-gpus": RUN | {"layout": {"dp": 0, "tp": 0}},
    "sharding": RUN | {"layout": {"sharding": "sideways"}},
    "deadline": RUN | {"deadline_at_s": "soon"},
    "gpu": RUN | {"gpu": ["x"]},
    "huge": RUN | {"batch_sequences": 10**300},
}
LINES = {"nested": "[" * 100_000, "digits": json.dumps(STEP | {"tokens": 10**400})}


def submitted(training: Any, name: str, run: dict[str, Any], line: str) -> str:
    """A job of that run directory; its own name holds escape sequences."""
    folder = training.folder / name
    folder.mkdir()
    comment = f"rightsizer: plan=/p.yaml run={folder}"
    job: str = training.slurm.run(
        "sbatch", "--parsable", "--gres=gpu:h100:1", "--output=/dev/null", f"--job-name={ESCAPE}",
        f"--comment={comment}", "--wrap=sleep 300",
    ).strip()  # fmt: skip
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "slurm.json").write_text(json.dumps(run | {"job_id": int(job)}))
    (folder / "progress.jsonl").write_text(line + "\n")
    return job


def test_nine_hostile_runs_leave_the_sweep_and_their_neighbour_alone(training: Any) -> None:
    good = json.dumps(STEP)
    hostile = [submitted(training, name, run, good) for name, run in RUNS.items()]
    hostile += [submitted(training, name, RUN, line) for name, line in LINES.items()]
    neighbour = submitted(training, "neighbour", RUN, good)
    training.slurm.wait("it runs", lambda: training.slurm.job(neighbour)["JobState"] == "RUNNING")
    metrics = training.folder / "rightsizer.prom"
    state = ("--state", training.folder / "m.db")
    swept = training.rightsizer("slurm", "monitor", "--sweeps", "1", "--textfile", metrics, *state)
    assert swept.returncode == 0, swept.stderr
    assert f'jobid="{neighbour}"' in metrics.read_text()
    report = training.rightsizer("slurm", "report", "--json", *state)
    jobs = {str(row["jobId"]): row for row in json.loads(report.stdout)["jobs"]}
    assert set(jobs) == {*hostile, neighbour}
    assert (jobs[neighbour]["step"], jobs[neighbour]["note"]) == (3, None)
    shown = training.rightsizer("slurm", "report", *state)
    text = report.stdout + report.stderr + shown.stdout + shown.stderr + swept.stdout + swept.stderr
    assert all(character.isprintable() or character == "\n" for character in text)
