"""Jobs that open at their likely size, on a real Slurm, where the believed rate is too high or too low.

The belief comes from the reports of earlier runs that the user gave to `rightsizer calibrate`. The shipped
first look, after twenty minutes, is made shorter by the monitor's flags. The deadlines follow from the
engine's prediction, the pace from the deadline: whether one holds is judged at the measured rate.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training import Check, Training

from rightsizer_api import load, sizing
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case
from rightsizer_engine.domain.observation import Observation, to_document
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Option, Plan, Request
from rightsizer_launch.running import calibration

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {{name: small}}
spec:
  model: {{dimensions: {{layers: 16, hidden: 2048, ffnHidden: 8192, heads: 16, vocab: 32000}}}}
  workload: {{tokens: 10B, sequenceLength: 1024, globalBatchSequences: 96, precision: bf16}}
  deadline: {{finishWithin: {deadline_s:.0f}s}}
  resources: {{gpuTypes: [H100-SXM5-80GB], maxGPUs: 4, gpusPerNode: 1}}
  layout: {{microBatch: 4}}
  launch:
    framework: ddp
    command: [paced_train.py]
    env: [{{name: GLOO_SOCKET_IFNAME, value: lo}}, {{name: STEP_SECONDS, value: "{step_s:.3f}"}}]
    checkpoint: {{path: checkpoints, interval: 5s, grace: 60s}}
  elasticity: {{mode: {mode}}}
"""
QUICK = ("--every", "2s", "--warm-up", "5s", "--window", "20s", "--cool-down", "15s")


class Believed(Training):
    """A training whose user has measured earlier runs."""

    def environment(self) -> dict[str, str]:
        """The environment of every training, with a calibration."""
        return Training.environment(self) | {"RIGHTSIZER_CALIBRATION": str(self.folder / "calibration.json")}

    def request(self) -> Request:
        """The calibrated request of the plan's submission."""
        cluster = lookup.cluster("H100-SXM5-80GB", gpus_per_node=1)
        asked = sizing.resolve(load(self.folder / "plan.yaml")).request(clusters=(cluster,))
        return replace(asked, calibration=calibration.load(self.folder / "calibration.json"))

    def option(self, gpus: int) -> tuple[Option, Case]:
        """The engine's calibrated prediction on so many GPUs, and the case."""
        asked = replace(self.request(), gpu_counts=(gpus,), deadline_s=None, elastic=False)
        answer = size(asked, compared=False)
        assert isinstance(answer, Plan)
        option = answer.option
        workload = replace(answer.request.workload, global_batch_sequences=option.global_batch_sequences)
        return option, Case(
            architecture=answer.request.architecture, workload=workload, cluster=option.cluster,
            framework=answer.request.framework, layout=option.layout,
        )  # fmt: skip

    def write(self, *, deadline_s: float, step_s: float = 0.3, mode: str = "Auto") -> None:
        """Write the plan."""
        text = PLAN.format(deadline_s=deadline_s, step_s=step_s, mode=mode)
        (self.folder / "plan.yaml").write_text(text)

    def believe(self, factor: float) -> None:
        """Earlier runs took `factor` times the predicted step."""
        self.write(deadline_s=1e6)
        earlier = []
        for gpus in (1, 2):
            option, case = self.option(gpus)
            row = Observation(run="", case=case, steps=400, step_s=factor * option.step_s, scatter=0.02)
            earlier += [replace(row, run=f"{gpus} GPUs, run {n}") for n in range(3)]
        report = self.folder / "report.json"
        report.write_text(json.dumps({"observations": [to_document(row) for row in earlier]}))
        done = self.rightsizer("calibrate", report)
        assert done.returncode == 0, done.stderr

    def due(self, plan: Plan, *, share: float) -> None:
        """Write the plan with this one's deadline, of which the training really takes a share on one GPU."""
        assert plan.request.deadline_s is not None
        steps = plan.request.workload.steps
        self.write(deadline_s=plan.request.deadline_s, step_s=share * plan.request.deadline_s / steps)

    def record(self) -> dict[str, Any]:
        """The record of the job's size."""
        return dict(json.loads((self.run / "slurm.json").read_text()))

    def report(self, job: str, state: Path) -> tuple[dict[str, Any], list[tuple[str, int, int, str]]]:
        """The job and its resizes in `rightsizer slurm report`."""
        done = self.rightsizer("slurm", "report", "--json", "--state", state, *QUICK[2:6])
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        rows = [
            (row["kind"], row["fromNodes"], row["toNodes"], row["stage"])
            for row in said["resizes"]
            if row["jobId"] == int(job)
        ]
        return next((each for each in said["jobs"] if each["jobId"] == int(job)), {}), rows


@pytest.fixture
def believed(training: Training) -> Believed:
    return Believed(slurm=training.slurm, folder=training.folder)


@pytest.fixture
def monitor(believed: Believed) -> Iterator[Path]:
    """A monitor that may do everything, in haste; its state."""
    state = believed.folder / "monitor.db"
    argv = believed.command("slurm", "monitor", "--act", "requeue", "--state", state, *QUICK)
    running = subprocess.Popen(argv, env=believed.environment(), cwd=believed.folder)
    yield state
    running.terminate()
    running.wait()


def test_a_job_that_is_slower_than_believed_opens_small_grows_once_and_meets_its_deadline(
    believed: Believed, monitor: Path, plan_within: Any, opens: Any
) -> None:
    believed.believe(2 / 3)
    believed.due(plan_within(believed.request(), opens(1)), share=1.1)
    job = believed.submit("--partition", "h100")
    sized = believed.record()
    assert (sized["nodes"], sized["first_look_s"]) == (1, 1200.0), sized
    believed.wait("it trains", believed.trains(world=1))
    assert "open with 1 H100-SXM5-80GB; after ~20 min of training we know" in believed.output()
    believed.wait("it has grown", lambda: bool(believed.report(job, monitor)[1]))
    ((kind, before, after, _),) = believed.report(job, monitor)[1]
    assert (kind, before) == ("requeue", 1)
    assert 1 < after <= sized["most_nodes"]
    seen = len(believed.records())
    believed.wait(
        "it trains at the larger size for several windows",
        believed.trains(world=after, steps=60, since=seen),
    )
    said, resizes = believed.report(job, monitor)
    assert resizes == [("requeue", 1, after, "done")]
    assert (said["action"], said["nodes"], said["confidence"] >= 0.9) == ("keep", after, True), said
    assert Check.continuous(believed.records())
    assert Check.losses_fall(believed.records())


@pytest.mark.nightly
def test_a_job_faster_than_predicted_returns_nodes_to_a_waiting_job(
    believed: Believed, monitor: Path, plan_within: Any, opens: Any
) -> None:
    believed.believe(1.0)
    believed.due(plan_within(believed.request(), opens(2)), share=0.6)
    job = believed.submit("--partition", "h100")
    sized = believed.record()
    assert (sized["nodes"], sized["first_look_s"]) == (2, 1200.0), sized

    def recommended() -> bool:
        said, _ = believed.report(job, monitor)
        return (said.get("action"), said.get("wantsGpus")) == ("shrink", 1)

    believed.wait("a smaller size is recommended", recommended)
    seen = len(believed.records())
    believed.wait("the monitor looks again", believed.trains(world=2, since=seen, steps=40))
    assert believed.report(job, monitor)[1] == [], "nobody waits"
    seen = len(believed.records())
    believed.slurm.run(
        *("sbatch", "--partition=h100", "--nodes=4", "--gres=gpu:h100:8", "--job-name=next"),
        *("--output=/dev/null", "--wrap=sleep 1"),
    )
    believed.wait("one worker goes on", believed.trains(world=1, since=seen, steps=80))
    said, resizes = believed.report(job, monitor)
    assert resizes == [("shrink", 2, 1, "done")]
    assert (said["action"], said["confidence"] >= 0.9) == ("keep", True), said
    assert Check.continuous(believed.records())
