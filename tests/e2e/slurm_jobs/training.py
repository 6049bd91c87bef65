"""A training of a Slurm user in a test: its folder, plan, commands, records and output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {{name: small}}
spec:
  model: {{dimensions: {{layers: 4, hidden: 192, heads: 4, vocab: 256}}}}
  workload: {{tokens: {tokens}, sequenceLength: 128, globalBatchSequences: 16}}
  deadline: {{finishWithin: {deadline}}}
  resources: {{minGPUs: {gpus}, maxGPUs: {most}, gpusPerNode: 1}}
  launch:
    framework: ddp
    command: [paced_train.py]
    env: [{{name: GLOO_SOCKET_IFNAME, value: lo}}, {{name: STEP_SECONDS, value: "{step_s}"}}]
    checkpoint: {{path: checkpoints, interval: {interval}, grace: 60s}}
    restarts: {{limit: {restarts}}}
  elasticity: {{mode: {mode}, minGPUs: 1}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A folder that all nodes see, with a plan and its script."""

    slurm: Any
    folder: Path

    @property
    def run(self) -> Path:
        """The run's directory."""
        return self.folder / "runs" / "small"

    def plan(
        self,
        *,
        gpus: int = 2,
        tokens: str = "10M",
        deadline: str = "100h",
        mode: str = "Auto",
        step_s: float = 0.2,
        interval: str = "5s",
        most: int | None = None,
        restarts: int = 10,
    ) -> Path:
        """Write the plan; it may grow to `most` GPUs."""
        path = self.folder / "plan.yaml"
        path.write_text(
            PLAN.format(
                gpus=gpus,
                tokens=tokens,
                deadline=deadline,
                mode=mode,
                step_s=step_s,
                interval=interval,
                most=most or gpus,
                restarts=restarts,
            )
        )
        return path

    def command(self, *arguments: str | Path) -> list[str]:
        """A command line of rightsizer."""
        return [str(Path(sys.executable).with_name("rightsizer")), *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        """Environment of that command: Slurm's, a home of its own, no calibration."""
        own = {"HOME": str(self.folder), "RIGHTSIZER_CALIBRATION": "", "OMP_NUM_THREADS": "1"}
        return {**self.slurm.environment, **own, "PATH": os.environ["PATH"]}

    def rightsizer(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the command and wait for it."""
        return subprocess.run(
            self.command(*arguments),
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self.environment(),
            timeout=3000,
        )

    def submit(self, *options: str) -> str:
        """Submit the plan; returns the job's number."""
        done = self.rightsizer("sbatch", self.folder / "plan.yaml", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.split()[1].rstrip(":")

    def records(self) -> list[dict[str, Any]]:
        """The records that rank 0 has written so far."""
        path = self.run / "progress.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def output(self) -> str:
        """The job's output."""
        return "".join(path.read_text() for path in sorted(self.run.glob("slurm-*.out")))

    def processes(self, job: str) -> list[int]:
        """Every process of the job, on all nodes of this machine, the eldest first.

        Slurms that run beside this one have jobs of the same numbers.
        """
        mine = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_CONF={self.slurm.environment['SLURM_CONF']}".encode()}
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                born = int((folder / "stat").read_text().rpartition(")")[2].split()[19])
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
            if mine <= set(variables):
                found.append((born, int(folder.name)))
        return [number for _, number in sorted(found)]

    def wait(self, what: str, condition: Callable[[], bool], within_s: float = 240) -> None:
        """Wait for a condition; a failure shows the job's output."""
        try:
            self.slurm.wait(what, condition, within_s)
        except pytest.fail.Exception as error:
            tail = "\n".join(self.output().splitlines()[-30:])
            pytest.fail(f"{error}\n{tail}\n{self.records()[-2:]}", pytrace=False)

    def trains(self, *, world: int, since: int = 0, steps: int = 3) -> Callable[[], bool]:
        """Whether the records from `since` on hold that many steps of `world` workers."""
        return lambda: (
            sum(r["event"] == "step" and r.get("world") == world for r in self.records()[since:]) >= steps
        )

    def saved(self, *, since: int = 0) -> bool:
        """Whether the records from `since` on hold a completed checkpoint."""
        return any(r["event"] == "checkpoint" for r in self.records()[since:])


class Check:
    """Checks that the records of every job pass."""

    @staticmethod
    def continuous(records: list[dict[str, Any]]) -> bool:
        """Whether every start continues from the newest checkpoint before it."""
        saved = 0
        for record in records:
            if record["event"] == "checkpoint":
                saved = record["step"]
            elif record["event"] == "start" and record.get("step", 0) != saved:
                return False
        return True

    @staticmethod
    def losses_fall(records: list[dict[str, Any]]) -> bool:
        """Whether the loss after every start, and at the end, is below that of the untrained model."""
        steps = [record for record in records if record["event"] == "step"]
        first, last = steps[0]["loss"], steps[-1]["loss"]
        resumed = [
            i for i, record in enumerate(records) if record["event"] == "start" and record.get("step", 0)
        ]
        after = [next((r["loss"] for r in records[i:] if r["event"] == "step"), last) for i in resumed]
        return bool(last < first and all(loss < first for loss in after))
