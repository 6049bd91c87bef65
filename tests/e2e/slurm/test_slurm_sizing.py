"""Jobs sized by their comment on a real Slurm: what they get, what bounds it, what is refused."""

import math
import re
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

DENSE = "rightsizer: model=llama-3.1-8b tokens=10B deadline=72h"
MOE = "rightsizer: model=mixtral-8x7b tokens=2B deadline=48h"
LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"


def gpus_of(submitted: Any) -> tuple[str, int]:
    """GRES type and number over all nodes."""
    match = re.fullmatch(r"gres[:/]gpu:(\w+):(\d+)", submitted.job["TresPerNode"])
    assert match is not None
    return match[1], int(match[2]) * int(submitted.tres["node"])


@pytest.mark.parametrize("comment", [DENSE, MOE, LORA], ids=["dense", "moe", "lora"])
def test_a_job_gets_the_size_on_the_terminal(site: Any, comment: str) -> None:
    submitted = site.sbatch(comment)
    nodes, minutes = (
        int(re.search(rf"{key}=(\d+)", submitted.job["AdminComment"])[1]) for key in ("nodes", "minutes")
    )
    kind, gpus = gpus_of(submitted)
    assert (int(submitted.tres["node"]), kind, submitted.job["Partition"]) == (nodes, "h100", "h100")
    assert f"rightsizer: {nodes} x {gpus // nodes} h100 in h100 for " in submitted.said
    assert _minutes(submitted.job["TimeLimit"]) == minutes
    assert int(submitted.job["NumTasks"]) == nodes


def test_a_lora_job_fits_into_the_smaller_partition(site: Any) -> None:
    submitted = site.sbatch(LORA, "--partition=a100")
    kind, gpus = gpus_of(submitted)
    assert (submitted.job["Partition"], kind) == ("a100", "a100")
    assert 1 <= gpus <= 8


def test_less_time_takes_more_gpus(site: Any) -> None:
    calm, hasty = site.sbatch(DENSE), site.sbatch(DENSE.replace("72h", "24h"))
    assert gpus_of(hasty)[1] > gpus_of(calm)[1]


def test_a_script_finds_its_layout_in_its_environment(site: Any) -> None:
    script, output = site.folder / "job.sh", site.folder / "output"
    script.write_text("#!/bin/sh\nenv | grep ^RIGHTSIZER_\n")
    options = ("--parsable", "--export=NONE", f"--output={output}", f"--comment={DENSE}")
    job = site.answered("sbatch", *options, script).stdout.strip()
    site.slurm.wait("the job ends", lambda: site.slurm.job(job)["JobState"] == "COMPLETED")
    found = dict(line.split("=", 1) for line in output.read_text().splitlines())
    degrees = [int(found[f"RIGHTSIZER_{name}"]) for name in ("DP", "TP", "PP", "CP")]
    assert math.prod(degrees) == int(found["RIGHTSIZER_GPUS"])


@pytest.mark.parametrize(
    ("options", "key", "value"),
    [
        (("--nodes=4", "--gres=gpu:h100:8"), "--nodes 4 to ", "h100"),
        (("--gpus=32",), "--gpus 32 to ", "h100"),
        (("--gres=gpu:h100:4", "--nodes=4"), "", "h100"),
        (("--partition=h100,a100",), "--partition h100,a100 to h100", "h100"),
    ],
    ids=["nodes", "gpus", "gres", "partitions"],
)
def test_the_user_s_size_is_lowered_with_a_note(
    site: Any, options: tuple[str, ...], key: str, value: str
) -> None:
    submitted = site.sbatch(DENSE, *options)
    assert key in submitted.said
    assert gpus_of(submitted) <= (value, 32)


def test_what_the_user_wrote_is_never_raised(site: Any) -> None:
    submitted = site.sbatch(LORA, "--nodes=1", "--gres=gpu:h100:2", "--time=20:00:00")
    assert gpus_of(submitted)[1] <= 2
    assert submitted.job["TimeLimit"] == "20:00:00"


@pytest.mark.parametrize(
    ("comment", "options", "said"),
    [
        ("rightsizer: modle=llama-3.1-8b tokens=1B", (), "did you mean model?"),
        ("rightsizer: model=llama-3.1-8x tokens=1B", (), "did you mean Llama 3.1 8B"),
        ("rightsizer: model=llama-3.1-8b tokens=1Q", (), "write tokens as 100B"),
        ("rightsizer: model=llama-3.1-8b tokens=1B; rm -rf /", (), "invalid character in the comment: ;"),
        ("rightsizer: model=llama-3.1-8b tokens=$(id)", (), "invalid character in the comment: $"),
        ("rightsizer: " + "model=x " * 200, (), "more than 1024 characters"),
        ("rightsizer: tokens=1B", (), "model: is missing"),
        ("rightsizer: plan=/etc/shadow", (), "must be a regular file that you own"),
        ("rightsizer: plan=/etc/passwd", (), "must be a regular file that you own"),
        (DENSE.replace("72h", "30m"), (), "no plan: "),
        (DENSE, ("--nodes=1", "--gres=gpu:h100:1"), "[within 1 nodes"),
        (DENSE, ("--time=30",), "a time limit of 30m"),
        (DENSE + " gpu=L40S", (), "has no partition for this job with L40S"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_a_refusal_has_its_reason_in_one_line(
    site: Any, comment: str, options: tuple[str, ...], said: str
) -> None:
    submitted = site.sbatch(comment, *options, user="nobody")
    assert submitted.job is None
    ours = [line for line in submitted.said.splitlines() if "rightsizer: " in line]
    assert len(ours) == 1
    assert said in ours[0]


def test_a_plan_file_is_read_for_its_owner_only(site: Any) -> None:
    path = site.folder / "plan.yaml"
    path.write_text(_PLAN)
    path.chmod(0o644)
    assert site.sbatch(f"rightsizer: plan={path}", user="nobody").job is None
    submitted = site.sbatch(f"rightsizer: plan={path} deadline=24h")
    assert gpus_of(submitted)[1] > gpus_of(site.sbatch(f"rightsizer: plan={path}"))[1]


@pytest.mark.parametrize("comment", ["", "nothing of ours", "a rightsizer: model=x"])
def test_other_jobs_are_left_alone_without_a_word(site: Any, comment: str) -> None:
    submitted = site.sbatch(comment, "--nodes=2")
    assert submitted.said == ""
    assert submitted.tres["node"] == "2"


def test_a_job_that_rightsizer_sized_itself_is_left_alone(site: Any) -> None:
    submitted = site.sbatch("rightsizer: plan=/nowhere.yaml run=/runs/one", "--nodes=3")
    assert (submitted.said, submitted.tres["node"]) == ("", "3")


def test_salloc_is_sized_and_srun_is_not(site: Any) -> None:
    granted = site.answered("salloc", f"--comment={LORA}", "sh", "-c", "scontrol show job $SLURM_JOB_ID")
    assert "TresPerNode=gres:gpu:h100:" in granted.stdout
    ran = site.slurm.ask("srun", f"--comment={LORA}", "true")
    assert (ran.returncode, "use sbatch or salloc" in ran.stderr) == (0, True)


def test_each_task_of_an_array_is_sized(site: Any) -> None:
    submitted = site.sbatch(LORA, "--array=1-3")
    assert submitted.job["ArrayTaskId"] == "1-3"
    assert gpus_of(submitted)[0] == "h100"


def test_a_heterogeneous_job_is_unchanged(site: Any) -> None:
    script = site.folder / "het.sh"
    script.write_text(
        f'#!/bin/sh\n#SBATCH --nodes=1 --comment="{LORA}"\n#SBATCH hetjob\n#SBATCH --nodes=2\nsleep 1\n'
    )
    done = site.slurm.ask("sbatch", "--hold", "--parsable", script, cwd="/")
    assert "heterogeneous jobs are not sized" in done.stderr
    assert "TresPerNode" not in site.slurm.run("scontrol", "show", "job", done.stdout.strip())


def test_a_requeued_job_keeps_its_size(site: Any) -> None:
    submitted = site.sbatch(LORA, "--requeue", hold=False)
    job = submitted.job["JobId"]
    site.slurm.wait("the job runs", lambda: site.slurm.job(job)["JobState"] != "PENDING")
    site.slurm.run("scontrol", "requeuehold", job)
    site.slurm.wait("the job waits again", lambda: site.slurm.job(job)["JobState"] == "PENDING")
    assert site.slurm.job(job)["TresPerNode"] == submitted.job["TresPerNode"]
    assert site.slurm.job(job)["Restarts"] == "1"


def _minutes(limit: str) -> int:
    days, _, clock = limit.rpartition("-")
    hours, minutes, _ = (int(part) for part in clock.split(":"))
    return int(days or 0) * 1440 + hours * 60 + minutes


_PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: file}
spec:
  model: {name: meta-llama/Llama-3.1-8B}
  workload: {tokens: 10B}
  deadline: {finishWithin: 72h}
"""
