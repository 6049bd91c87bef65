"""A real job in a directory that only its user can enter: the daemon watches it all the same."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_job_in_a_private_home_is_measured_and_stays_unreadable_to_others(training: Any) -> None:
    training.folder.chmod(0o700)
    training.plan(gpus=1)
    job = training.submit("--partition", "h100")
    conf = Path(training.slurm.environment["RIGHTSIZER_SLURM_CONF"])
    measured = re.compile(
        rf'^rightsizer_slurm_job_measured_tokens_per_second{{cluster="\w+",jobid="{job}"}} [1-9]',
        re.MULTILINE,
    )
    training.wait("it trains", training.trains(world=1))
    training.wait("the daemon measures it", lambda: measured.search(training.slurm.metrics()) is not None)
    assert (training.run / "rendezvous.key").stat().st_mode & 0o777 == 0o600, "its user alone reads the key"
    copies = conf.parent.parent / "runs" / job
    for command in (["ls", copies.parent], ["ls", copies], ["cat", copies / "plan.yaml"]):
        read = subprocess.run(command, check=False, capture_output=True, user="nobody", group="nogroup")
        assert read.returncode != 0, command
    assert (training.folder.stat().st_mode & 0o777) == 0o700
    assert re.search(r"^rightsizer: sized: 1 x 1 h100 in h100 for .*done in", training.output(), re.MULTILINE)


def test_a_job_sized_by_the_plugin_finds_its_size_in_its_output(training: Any) -> None:
    output = training.folder / "out"
    comment = "--comment=rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
    sbatch = ("sbatch", "--parsable", f"--output={output}", comment, "--wrap=sleep 300")
    job = training.slurm.run(*sbatch).strip()
    size = re.compile(r"nodes=1 gpus=\d+ minutes=\d+ bound=\w+: .*done in.*USD")
    training.slurm.wait("a size", lambda: size.search(training.slurm.job(job)["AdminComment"]) is not None)
    training.slurm.wait("it in the output", lambda: output.exists() and bool(size.search(output.read_text())))


def test_install_check_queries_the_daemon(training: Any) -> None:
    answered = re.compile(r"^ok +the daemon answers at \S+: (not changed|1 x)", re.M)

    def sized() -> bool:  # "its size is not yet known" just after the daemon's start
        said = training.rightsizer("slurm", "install", "--check").stdout
        assert "ok      the daemon answers at " in said, said
        return answered.search(said) is not None

    training.slurm.wait("an answer with a size", sized)
