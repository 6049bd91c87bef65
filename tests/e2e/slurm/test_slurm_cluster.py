"""The test cluster itself: real jobs on pretended GPUs, nodes that die, nothing left behind."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_srun_gives_each_node_its_gpus(slurm: Any) -> None:
    said = slurm.run(
        "srun", "--nodes=2", "--gpus-per-node=8", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    )
    assert sorted(said.splitlines()) == ["n1 0,1,2,3,4,5,6,7", "n2 0,1,2,3,4,5,6,7"]


def test_a_job_of_a_dead_node_is_requeued_and_its_processes_are_gone(slurm: Any, tmp_path: Path) -> None:
    mark = "31415.926"
    job = slurm.run("sbatch", "--parsable", "--requeue", "--output=/dev/null", f"--wrap=sleep {mark}").strip()
    slurm.wait("the job runs", lambda: slurm.job(job)["JobState"] == "RUNNING")
    slurm.wait("its process", lambda: _processes(mark) > 0)
    node = slurm.job(job)["BatchHost"]
    slurm.control("node-down", node)
    slurm.wait("the job waits again", lambda: slurm.job(job)["JobState"] == "PENDING")
    assert _processes(mark) == 0
    slurm.run("scancel", job)
    slurm.control("node-up", node)
    slurm.wait("the node is back", lambda: "idle" in slurm.run("sinfo", "-h", "-n", node, "-o", "%T"))


def test_down_leaves_no_process_even_after_the_controller_died_and_records_were_lost(
    slurm: Any, slurm_control: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    slurm_control("crash", "up", plugin=False)
    home = Path("/run/rightsizer-slurm/crash")
    slurm_control("crash", "kill", "slurmctld")
    shutil.rmtree(home / "pids")
    assert _processes(str(home)) > 0
    slurm_control("crash", "down")
    assert _processes(str(home)) == 0
    assert not home.exists()


def _processes(text: str) -> int:
    """The number of this machine's processes with the text on their command lines."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += text in path.read_text(errors="replace").replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
