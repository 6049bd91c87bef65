"""One contract that every backend keeps, on a real Slurm: what it reads, and what it does to a job.

With SLURM_CONF_TO_TRY=/path/slurm.conf it is tried on a cluster that runs already (Slurm's commands on PATH).
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backend_pyslurm import backend as pyslurm_backend
from rightsizer_slurm.cluster.backends import Backend, away, choose, fits, pyslurm_version
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError

pytestmark = pytest.mark.slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A backend on a cluster, and a place for its jobs' output."""

    backend: Backend
    slurm: Slurm
    folder: Path

    def submit(self, *options: str, command: str = "sleep 300", name: str = "contract") -> int:
        """Submit a batch script; the job."""
        script = self.folder / f"{name}.sh"
        script.write_text(f"#!/bin/bash\n{command}\n")
        asked = ("--parsable", f"--output={self.folder}/%j.out", "--requeue", f"--job-name={name}")
        where = ("--partition=h100", "--nodes=2", "--gres=gpu:h100:2", "--cpus-per-task=4", "--time=30")
        return int(self.slurm.run("sbatch", *asked, *where, *options, str(script)))

    def wait(self, job: int, holds: Callable[[Any], bool]) -> Any:
        """The job once something holds of it."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            found = self.backend.job(job)
            if found is not None and holds(found):
                return found
            time.sleep(0.2)
        pytest.fail(f"job {job}: {self.backend.job(job)}")


def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Of the cluster that is tried."""
    given = os.environ.get("SLURM_CONF_TO_TRY")
    if given:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": given,
                "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}  # fmt: skip
    return dict(request.getfixturevalue("slurm").environment)


@pytest.fixture(params=["commands", "pyslurm"])
def door(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    variables = environment(request)
    monkeypatch.setenv("SLURM_CONF", variables["SLURM_CONF"])
    slurm = Slurm(environment=variables)
    backend: Backend = SlurmCommands(slurm)
    if request.param == "pyslurm":
        here = backend.version()
        if not fits(pyslurm_version(), here):
            have = f"pyslurm {pyslurm_version()}" if pyslurm_version() else "no pyslurm"
            pytest.skip(f"{have} is installed, and Slurm here is {here[0]}.{here[1]:02}")
        backend = pyslurm_backend(slurm)
    yield Door(backend=backend, slurm=slurm, folder=tmp_path)
    jobs = slurm.run("squeue", "--noheader", "--format=%A", "--name=contract").split()
    if jobs:
        slurm.run("scancel", "--full", *sorted(set(jobs)))


def test_the_version_is_the_cluster_s(door: Door) -> None:
    major, minor = door.backend.version()
    assert f" {major}.{minor:02}." in door.slurm.run("sinfo", "--version")


def test_a_running_job_is_read_in_full(door: Door) -> None:
    job = door.submit('--comment=resizer: model=gpt2, "quoted" = 1', "--hold")
    door.backend.release(job)
    found = door.wait(job, lambda job: job.running)
    assert (found.name, found.partition, found.nodes, found.tasks) == ("contract", "h100", 2, 2)
    assert (found.gpus, found.gpu_type, found.cpus) == (4, "h100", 8)
    assert (found.user, found.user_id, found.time_limit_s) == ("root", 0, 1800.0)
    assert found.comment == 'resizer: model=gpt2, "quoted" = 1'
    assert found.batch_host.startswith("n")
    assert (found.restarts, found.requeue, found.special, found.live) == (0, True, "", True)
    assert time.time() - 600 < found.started_s < found.ends_s
    assert job in {each.job_id for each in door.backend.jobs()}


def test_a_held_job_is_known_released_and_held_again(door: Door) -> None:
    job = door.submit("--hold", "--begin=now+1hour")
    assert door.wait(job, lambda job: job.pending).held
    door.backend.release(job)
    door.wait(job, lambda job: not job.held)
    door.backend.hold(job)
    door.wait(job, lambda job: job.held)


def test_a_job_is_requeued_held_resized_in_one_update_and_goes_on(door: Door) -> None:
    job = door.submit()
    door.wait(job, lambda job: job.running)
    door.backend.requeue(job, hold=True)
    waiting = door.wait(job, lambda job: job.held)
    assert waiting.restarts == 1
    door.backend.resize(job, nodes=3, tasks=3, cpus=12)
    assert door.wait(job, lambda job: job.nodes == 3).gpus == 6
    door.backend.release(job)
    assert door.wait(job, lambda job: job.running).nodes == 3


def test_a_running_job_gives_nodes_back(door: Door) -> None:
    job = door.submit("--no-kill")
    door.wait(job, lambda job: job.running)
    door.backend.shrink(job, nodes=1)
    found = door.wait(job, lambda job: job.nodes == 1)
    assert (found.running, found.gpus, found.restarts) == (True, 2, 0)


def test_an_array_is_told_apart(door: Door) -> None:
    job = door.submit("--array=1-2", "--hold")
    assert door.wait(job, lambda job: job.pending).special == "array"


def test_a_signal_reaches_the_script_and_a_word_its_output(door: Door) -> None:
    job = door.submit(command="trap 'echo saved; exit 0' USR2; sleep 300 & wait")
    door.wait(job, lambda job: job.running)
    time.sleep(2)  # until the script has set its trap
    door.backend.notify(job, "hello from the contract")
    door.backend.signal_script(job, "USR2")
    door.wait(job, lambda job: not job.live)
    said = (door.folder / f"{job}.out").read_text()
    assert "saved" in said
    assert "hello from the contract" in said


def test_a_job_that_never_was_is_none_and_cannot_be_changed(door: Door) -> None:
    assert door.backend.job(999_999) is None
    for verb in (door.backend.hold, door.backend.release, door.backend.requeue):
        with pytest.raises(SlurmError) as raised:
            verb(999_999)
        assert not away(raised.value)


def test_the_cluster_s_gpus_are_read(door: Door) -> None:
    here = door.backend.cluster()
    assert {partition.name for partition in here.partitions} >= {"h100", "a100"}
    assert sum(node.gpus for node in here.nodes if node.gpu == "h100") == 32


def test_auto_takes_pyslurm_where_it_fits_and_commands_elsewhere(door: Door) -> None:
    commands = SlurmCommands(door.slurm)
    chosen = choose("auto", commands=commands, pyslurm=lambda: pyslurm_backend(door.slurm))
    fitting = fits(pyslurm_version(), commands.version())
    assert chosen.name == ("pyslurm" if fitting else "commands")
