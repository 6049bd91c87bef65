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
from rightsizer_slurm.cluster.backends import Backend, choose, fits, pyslurm_version, unavailable
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError

pytestmark = pytest.mark.slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUnderTest:
    """A backend on a cluster, and a folder for the output of its jobs."""

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
        """The job as soon as a condition holds."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            found = self.backend.job(job)
            if found is not None and holds(found):
                return found
            time.sleep(0.2)
        pytest.fail(f"job {job}: {self.backend.job(job)}")


def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment of the tested cluster."""
    given = os.environ.get("SLURM_CONF_TO_TRY")
    if given:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C", "SLURM_CONF": given,
                "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}  # fmt: skip
    return dict(request.getfixturevalue("slurm").environment)


@pytest.fixture(params=["commands", "pyslurm"])
def tested(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterUnderTest]:
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
    yield ClusterUnderTest(backend=backend, slurm=slurm, folder=tmp_path)
    jobs = slurm.run("squeue", "--noheader", "--format=%A", "--name=contract").split()
    if jobs:
        slurm.run("scancel", "--full", *sorted(set(jobs)))


def test_the_version_is_the_cluster_s(tested: ClusterUnderTest) -> None:
    major, minor = tested.backend.version()
    assert f" {major}.{minor:02}." in tested.slurm.run("sinfo", "--version")


def test_a_running_job_is_read_in_full(tested: ClusterUnderTest) -> None:
    job = tested.submit('--comment=resizer: model=gpt2, "quoted" = 1', "--hold")
    tested.backend.release(job)
    found = tested.wait(job, lambda job: job.running)
    assert (found.name, found.partition, found.nodes) == ("contract", "h100", 2)
    assert (found.gpus, found.gpu_type) == (4, "h100")
    assert (found.user, found.user_id) == ("root", 0)
    assert found.comment == 'resizer: model=gpt2, "quoted" = 1'
    assert found.batch_host.startswith("n")
    assert (found.restarts, found.requeue, found.special, found.live) == (0, True, "", True)
    assert time.time() - 600 < found.started_s < time.time() + 60
    assert job in {each.job_id for each in tested.backend.jobs()}


def test_a_held_job_is_known_and_released(tested: ClusterUnderTest) -> None:
    job = tested.submit("--hold", "--begin=now+1hour")
    assert tested.wait(job, lambda job: job.pending).held
    tested.backend.release(job)
    tested.wait(job, lambda job: not job.held)


def test_a_job_is_requeued_held_resized_in_one_update_and_resumes(tested: ClusterUnderTest) -> None:
    job = tested.submit()
    tested.wait(job, lambda job: job.running)
    tested.backend.requeue(job, hold=True)
    waiting = tested.wait(job, lambda job: job.held)
    assert waiting.restarts == 1
    tested.backend.resize(job, nodes=3, tasks=3, cpus=12)
    assert tested.wait(job, lambda job: job.nodes == 3).gpus == 6
    tested.backend.release(job)
    assert tested.wait(job, lambda job: job.running).nodes == 3


def test_a_running_job_gives_nodes_back(tested: ClusterUnderTest) -> None:
    job = tested.submit("--no-kill")
    tested.wait(job, lambda job: job.running)
    tested.backend.shrink(job, nodes=1)
    found = tested.wait(job, lambda job: job.nodes == 1)
    assert (found.running, found.gpus, found.restarts) == (True, 2, 0)


def test_array_tasks_are_distinguished(tested: ClusterUnderTest) -> None:
    job = tested.submit("--array=1-2", "--hold")
    assert tested.wait(job, lambda job: job.pending).special == "array"


def test_a_signal_reaches_the_script_and_a_word_its_output(tested: ClusterUnderTest) -> None:
    job = tested.submit(command="trap 'echo saved; exit 0' USR2; sleep 300 & wait")
    tested.wait(job, lambda job: job.running)
    time.sleep(2)  # until the script has set its trap
    tested.backend.notify(job, "hello from the contract")
    tested.backend.signal_script(job, "USR2")
    tested.wait(job, lambda job: not job.live)
    said = (tested.folder / f"{job}.out").read_text()
    assert "saved" in said
    assert "hello from the contract" in said


def test_a_job_that_never_was_is_none_and_cannot_be_changed(tested: ClusterUnderTest) -> None:
    assert tested.backend.job(999_999) is None
    for verb in (tested.backend.release, tested.backend.requeue):
        with pytest.raises(SlurmError) as raised:
            verb(999_999)
        assert not unavailable(raised.value)


def test_the_cluster_s_gpus_are_read(tested: ClusterUnderTest) -> None:
    here = tested.backend.cluster()
    assert {partition.name for partition in here.partitions} >= {"h100", "a100"}
    assert sum(node.gpus for node in here.nodes if node.gpu == "h100") == 32


def test_auto_takes_pyslurm_where_it_fits_and_commands_elsewhere(tested: ClusterUnderTest) -> None:
    commands = SlurmCommands(tested.slurm)
    chosen = choose("auto", commands=commands, pyslurm=lambda: pyslurm_backend(tested.slurm))
    fitting = fits(pyslurm_version(), commands.version())
    assert chosen.name == ("pyslurm" if fitting else "commands")
