"""The stock transformers script on real Slurm: measured, killed, resumed, resized, and not changed."""

import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.checkout import PACKAGES, ROOT
from training import Training

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

EXAMPLE = ROOT / "examples/stacks/transformers"
COMMAND = "import sys; from rightsizer_cli.start import main; sys.argv[0] = 'rightsizer'; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackTraining(Training):
    """A training whose commands and workers run in a stack's environment."""

    python: str

    @property
    def run(self) -> Path:
        return self.folder / "runs" / "stock-trainer"

    def command(self, *arguments: str | Path) -> list[str]:
        return [self.python, "-c", COMMAND, *map(str, arguments)]

    def environment(self) -> dict[str, str]:
        packages = os.pathsep.join(str(ROOT / package) for package in PACKAGES)
        return {**Training.environment(self), "PYTHONPATH": packages, "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def stock(training: Training) -> StackTraining:
    """The example's script, and its plan with more tokens, one GPU of each of two nodes, and loopback."""
    environment = [ROOT / "scripts/stack_env.sh", EXAMPLE.name]
    python = subprocess.run(environment, check=True, capture_output=True, text=True).stdout.strip()
    shutil.copy(EXAMPLE / "train.py", training.folder)
    plan = yaml.safe_load((EXAMPLE / "plan.yaml").read_text())
    plan["spec"]["workload"]["tokens"] = "400k"
    plan["spec"]["resources"]["gpusPerNode"] = 1
    plan["spec"]["launch"]["env"] = [{"name": "GLOO_SOCKET_IFNAME", "value": "lo"}]
    (training.folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    return StackTraining(slurm=training.slurm, folder=training.folder, python=python)


def test_a_stock_script_is_measured_killed_resumed_and_resized(stock: Any, check: Any) -> None:
    job = stock.submit("--partition", "h100")
    stock.wait("two workers train", stock.trains(world=2))
    stock.wait("a checkpoint", stock.saved)
    seen = len(stock.records())
    os.kill(last_rank(stock, job), signal.SIGKILL)
    stock.wait("both go on", stock.trains(world=2, since=seen))

    seen = len(stock.records())
    shrunk = stock.rightsizer("slurm", "resize", job, "--nodes", "1")
    assert shrunk.returncode == 0, shrunk.stdout + shrunk.stderr
    stock.wait("one goes on", stock.trains(world=1, since=seen))
    told = json.loads(stock.rightsizer("slurm", "report", "--json").stdout)
    assert [each["jobId"] for each in told["jobs"]] == [int(job)]
    stock.wait("the job ends", lambda: stock.slurm.job(job)["JobState"] == "COMPLETED")

    records = stock.records()
    steps = [record for record in records if record["event"] == "step"]
    assert [record["world"] for record in records if record["event"] == "start"] == [2, 2, 1]
    assert {record["tokens"] / record["step"] for record in steps} == {16 * 64}
    assert steps[-1]["tokens"] >= 400_000
    assert check.continuous(records)
    assert check.losses_fall(records)
    stock.wait("nothing of it is left", lambda: not stock.processes(job))


def last_rank(stock: Any, job: str) -> int:
    """The process of the last rank; its record holds the number that it has on its node."""
    start = next(record for record in stock.records() if record["event"] == "start")
    known = re.compile(rf"^NSpid:.*\s{start['pids'][-1]}$", re.MULTILINE)
    return next(pid for pid in stock.processes(job) if known.search(Path(f"/proc/{pid}/status").read_text()))
