"""Somebody else on the cluster's network attacks a job's rendezvous store, on the job's first node."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.nightly]

ATTACK = Path(__file__).resolve().parents[1] / "rendezvous_attack.py"


def endpoint(training: Any, job: str) -> tuple[str, str]:
    """Host and port of the job's store."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
        variables = dict(line.partition("=")[::2] for line in lines)
        mine = variables.get("SLURM_CONF") == training.slurm.environment["SLURM_CONF"]
        if mine and variables.get("SLURM_JOB_ID") == job and "PET_RDZV_ENDPOINT" in variables:
            host, _, port = variables["PET_RDZV_ENDPOINT"].rpartition(":")
            return host, port
    raise AssertionError("no process of the job has a rendezvous")


def test_a_forged_rendezvous_state_runs_nothing_and_the_job_trains_on(training: Any, tmp_path: Path) -> None:
    training.plan(gpus=2)
    job = training.submit("--partition", "h100")
    training.wait("two workers train", training.trains(world=2))
    proof, log = training.run / "owned", tmp_path / "attack.log"
    with log.open("w") as output:
        argv = [sys.executable, ATTACK, *endpoint(training, job), proof]
        attacker = subprocess.Popen(argv, stdout=output, stderr=output)
    try:
        training.wait("an attack", lambda: log.read_text().count("overwritten") > 10)
        seen = len(training.records())
        training.wait("two workers train on", training.trains(world=2, since=seen))
        assert not proof.exists()
    finally:
        attacker.kill()
        attacker.wait()
