"""`rightsizer probe --slurm` on the real Slurm: a small job, its measurement, nothing left behind."""

import json
import signal
import subprocess
from typing import Any

import pytest

pytestmark = pytest.mark.slurm
PREDICTED_S = 0.56
"""About what the engine predicts for 1.3B parameters and 32k tokens on two H100s of two nodes."""


def probe(training: Any, *options: str) -> Any:
    """The command, started, with a calibration file of its own."""
    environment = training.environment() | {
        "RIGHTSIZER_CALIBRATION": str(training.folder / "calibration.json")
    }
    # a shell's background jobs, and what they start, ignore SIGINT
    return subprocess.Popen(
        [
            "env",
            "--default-signal=INT",
            *training.command("probe", training.folder / "plan.yaml", "--slurm", *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=training.folder,
        env=environment,
    )


def test_a_probe_measures_a_plan_of_two_nodes_and_narrows_it(training: Any) -> None:
    """The measured rate is 1.2 times the prediction for this model."""
    plan = training.plan(step_s=PREDICTED_S * 1.2 * 2**0.5, tokens="10B")
    small, batch = (
        "layers: 4, hidden: 192, heads: 4, vocab: 256",
        "sequenceLength: 128, globalBatchSequences: 16",
    )
    assert small in plan.read_text()
    assert batch in plan.read_text()
    plan.write_text(
        plan.read_text()
        .replace(small, "layers: 24, hidden: 2048, heads: 16, vocab: 32000")
        .replace(batch, "sequenceLength: 1024, globalBatchSequences: 32")
    )
    said, errors = probe(training, "--time", "90s").communicate(timeout=600)
    assert "plan: 80 %:" in said, said + errors
    (run,) = json.loads((training.folder / "calibration.json").read_text())["observations"]
    assert run["measured"]["steps"] >= 5
    assert run["measured"]["stepSeconds"] >= PREDICTED_S
    assert run["measured"]["startSeconds"] > 0
    assert run["measured"]["checkpointSeconds"] > 0, "the last thing it did was to save"
    assert not training.slurm.run("squeue", "--noheader").strip()
    before, after = said.split("(a factor ")[1].split(")")[0].split(" -> ")
    assert float(after) < float(before)


def test_ctrl_c_cancels_the_job_and_records_nothing(training: Any) -> None:
    training.plan()
    running = probe(training)
    training.slurm.wait("a job", lambda: bool(training.slurm.run("squeue", "--noheader").strip()), 120)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)
    assert running.returncode == 130
    training.slurm.wait("no job", lambda: not training.slurm.run("squeue", "--noheader").strip(), 120)
    assert not (training.folder / "calibration.json").exists()
