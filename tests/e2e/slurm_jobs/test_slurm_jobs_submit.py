"""Output, submits and refusals of `rightsizer sbatch` and its companions."""

import json
import re
from typing import Any

import pytest

pytestmark = pytest.mark.slurm


def test_a_dry_run_prints_the_script_and_submits_nothing(training: Any) -> None:
    done = training.rightsizer("sbatch", training.plan(), "--dry-run", "--partition", "h100")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --gres=gpu:h100:1" in done.stdout
    assert "ntasks-per-node" not in "".join(re.findall(r"^#SBATCH.*$", done.stdout, flags=re.MULTILINE))
    assert not training.run.exists()
    assert not training.slurm.run("squeue", "--noheader").strip()


def test_a_submitted_job_has_the_printed_size(training: Any) -> None:
    training.plan()
    job = training.submit("--partition", "h100", "--", "--hold", "--nice=7")
    shown = training.slurm.job(job)
    assert (shown["TresPerNode"], shown["Partition"], shown["Nice"]) == ("gres:gpu:h100:1", "h100", "7")
    assert "node=2" in shown["TRES"]
    assert shown["Requeue"] == "1"
    assert json.loads((training.run / "slurm.json").read_text())["job_id"] == int(job)


def test_a_comment_with_blanks_in_its_paths_reaches_slurm_unchanged(training: Any) -> None:
    folder = training.folder / "a b"
    training.plan()
    job = training.submit("--dir", str(folder), "--", "--hold")
    assert f'run="{folder}"' in training.slurm.job(job)["Comment"]


def test_the_same_run_is_not_submitted_twice(training: Any) -> None:
    training.plan()
    training.submit("--", "--hold")
    again = training.rightsizer("sbatch", training.folder / "plan.yaml")
    assert again.returncode == 2
    assert "scancel it first, or use another --dir" in again.stderr
    assert len(again.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "options", "code", "message"),
    [
        ({}, ["--partition", "gpu"], 2, "is not a partition of this cluster; there are a100, h100"),
        ({"gpus": 16, "deadline": "1s"}, [], 3, "no plan"),
        ({}, ["--time", "soon"], 2, "--time"),
        ({}, ["--dir", "it's"], 2, "has a character that a Slurm comment cannot hold"),
    ],
    ids=["partition", "deadline", "time", "path"],
)
def test_what_cannot_be_is_refused_in_a_line(
    training: Any, change: dict[str, Any], options: list[str], code: int, message: str
) -> None:
    done = training.rightsizer("sbatch", training.plan(**change), *options)
    assert done.returncode == code, done.stdout + done.stderr
    assert message in (done.stderr or done.stdout).lower() or message in done.stderr
    assert not training.slurm.run("squeue", "--noheader").strip()


def test_an_image_is_refused_where_there_is_no_pyxis(training: Any) -> None:
    path = training.plan()
    path.write_text(path.read_text().replace("framework: ddp", "framework: ddp\n    image: train:1"))
    done = training.rightsizer("sbatch", path)
    assert done.returncode == 2
    assert "needs Pyxis" in done.stderr


@pytest.mark.parametrize(
    ("job", "message"), [("99999", "is not a pending or running job"), ("foreign", "was not submitted")]
)
def test_only_jobs_of_ours_are_resized(training: Any, job: str, message: str) -> None:
    if job == "foreign":
        job = training.slurm.run(
            "sbatch", "--parsable", "-N2", "--gres=gpu:1", "--output=/dev/null", "--wrap=sleep 60"
        ).strip()
    done = training.rightsizer("slurm", "resize", job, "--nodes", "1")
    assert done.returncode == 2
    assert message in done.stderr


def test_the_monitor_reports_every_gpu_job_and_changes_none(training: Any) -> None:
    job = training.slurm.run(
        "sbatch", "--parsable", "-N2", "--gres=gpu:h100:4", "--output=/dev/null", "--wrap=sleep 60"
    ).strip()
    metrics = training.folder / "slurm.prom"
    done = training.rightsizer(
        "slurm", "monitor", "--sweeps", "2", "--every", "1s", "--state", training.folder / "state.db",
        "--textfile", metrics, "--act", "requeue",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = metrics.read_text()
    assert re.search(rf'rightsizer_slurm_job_gpus{{cluster="[^"]+",jobid="{job}"}} (8|0)\.0', text)
    assert 'rightsizer_slurm_decisions_total{action="keep"} 2.0' in text
    assert training.slurm.job(job)["JobState"] in {"RUNNING", "PENDING"}
    told = json.loads(training.rightsizer("slurm", "report", "--json").stdout)
    assert [each["jobId"] for each in told["jobs"]] == [int(job)]
