"""cli_filter.lua in real sbatch, salloc and srun, where slurmctld runs no code of ours."""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

SOURCES = Path(__file__).resolve().parents[3] / "slurm/rightsizer_slurm/data"
COMMENT = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"


@pytest.fixture
def client(site: Any) -> Iterator[Any]:
    """The site as a login node sees it whose slurm.conf has the filter; slurmctld's own plugin is off."""
    etc = site.folder / "etc"
    shutil.copytree(site.conf.parent, etc, ignore=shutil.ignore_patterns("*.key"))
    for name in ("rightsizer.lua", "cli_filter.lua"):
        shutil.copy(SOURCES / name, etc)
    with (etc / "slurm.conf").open("a") as conf:
        conf.write("CliFilterPlugins=lua\n")
    environment = dict(site.slurm.environment) | {"SLURM_CONF": str(etc / "slurm.conf")}
    slurm = dataclasses.replace(site.slurm, environment=environment)
    with site.settings(mode="off"):
        yield dataclasses.replace(site, slurm=slurm, conf=etc / "rightsizer.conf")


def test_a_plain_users_job_is_sized(client: Any) -> None:
    submitted = client.sbatch(COMMENT, user="nobody")
    assert submitted.job["TresPerNode"].startswith("gres:gpu:h100:")
    assert "rightsizer: 1 x " in submitted.said


def test_a_job_of_several_nodes_gets_all_their_cores(client: Any) -> None:
    submitted = client.sbatch("rightsizer: model=llama-3.1-8b tokens=10B deadline=24h", user="nobody")
    assert (submitted.tres["node"], submitted.tres["cpu"]) == ("3", "192"), submitted.said


@pytest.mark.parametrize(
    ("options", "gres"),
    [
        (("--deadline=now+2hours",), "gres:gpu:h100:2"),
        (("--exclude=n[1-4]", "--mem=3G"), "gres:gpu:a100:1"),
        (("--ntasks-per-node=4",), "gres:gpu:h100:4"),
    ],
    ids=["deadline", "nodes and memory", "tasks"],
)
def test_the_size_keeps_to_the_users_options(client: Any, options: tuple[str, ...], gres: str) -> None:
    assert client.sbatch(COMMENT, *options).job["TresPerNode"] == gres


def test_what_the_user_wrote_bounds_it(client: Any) -> None:
    options = ("--nodes=1-2", "--gpus-per-node=a100:2", "--partition=a100", "--time=20:00:00")
    submitted = client.sbatch(COMMENT, *options)
    assert submitted.job["TresPerNode"] in {"gres:gpu:a100:1", "gres:gpu:a100:2"}
    assert submitted.job["TimeLimit"] == "20:00:00"


def test_a_refusal_ends_sbatch(client: Any) -> None:
    submitted = client.sbatch("rightsizer: modle=x")
    assert (submitted.job, "did you mean model?" in submitted.said) == (None, True)


@pytest.mark.parametrize("option", ["--gpus=4", "--gpus-per-task=1"])
def test_a_job_that_it_cannot_change_stays_unchanged(client: Any, option: str) -> None:
    submitted = client.sbatch(COMMENT, "--ntasks=1", option)
    assert "are not sized" in submitted.said
    assert submitted.job is not None


def test_without_the_daemon_the_job_is_submitted_unchanged(client: Any) -> None:
    text = client.conf.read_text().replace("/plan.sock", "/nobody.sock")
    client.conf.write_text(text)
    submitted = client.sbatch(COMMENT, "--nodes=2")
    assert (submitted.tres["node"], "the job is submitted unchanged" in submitted.said) == ("2", True)


def test_srun_keeps_its_options(client: Any) -> None:
    done = client.slurm.ask("srun", f"--comment={COMMENT}", "true")
    assert (done.returncode, "use sbatch or salloc" in done.stderr) == (0, True)


@pytest.mark.parametrize(
    ("option", "lines"), [("--job-name=training", 1), ("--quiet", 0)], ids=["one line", "quiet"]
)
def test_salloc_prints_one_line_and_none_if_it_is_quiet(client: Any, option: str, lines: int) -> None:
    client.sbatch(COMMENT)  # its size is known now
    done = client.slurm.ask(
        "salloc", option, f"--comment={COMMENT}", "srun", "--comment=rightsizer: x=1", "true"
    )
    assert done.stderr.count("rightsizer:") == lines, done.stderr
