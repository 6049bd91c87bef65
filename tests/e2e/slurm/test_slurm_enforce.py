"""What gets around `enforce`, and what becomes of a job that cannot be sized, on a real Slurm."""

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}h"
PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: file}
spec:
  model: {name: meta-llama/Llama-3.1-8B}
  workload: {tokens: 50M, method: lora}
  deadline: {finishWithin: 24h}
"""
DENIED, NO_SIZE = "Access/permission denied", "Job size specification needs to be provided"


@pytest.mark.parametrize(
    ("comment", "options", "said"),
    [
        (LORA.format(24), ("--time=5",), "Requested time limit is invalid"),
        (LORA.format(1), ("--nodes=1", "--gres=gpu:1"), "Node count specification invalid"),
        (LORA.format(24) + " gpu=L40S", (), "Requested node configuration is not available"),
    ],
    ids=["time", "nodes", "size"],
)
def test_slurms_error_says_what_kind_of_refusal_it_is(
    site: Any, comment: str, options: tuple[str, ...], said: str
) -> None:
    submitted = site.sbatch(comment, *options)
    assert (submitted.job, said in submitted.said) == (None, True), submitted.said


@pytest.mark.parametrize("policy", ["as-written", "refuse"])
def test_a_job_of_a_comment_only_follows_the_sites_on_fault(site: Any, policy: str) -> None:
    with site.settings(f"on_fault = {policy}\n", socket="/nowhere/plan.sock", cooldown_s=0, first=True):
        alone = site.sbatch(LORA.format(24))
        stated = site.sbatch(LORA.format(24), "--nodes=2")
    assert (alone.job is None) == (policy == "refuse")
    assert stated.tres["node"] == "2"
    log = (site.conf.parent.parent / "log" / "slurmctld.log").read_text()
    assert f", {policy}; fault " in log


def test_a_job_that_the_plugin_held_is_sized_when_the_daemon_is_back(site: Any) -> None:
    with site.settings("on_fault = hold\n", cooldown_s=0, first=True, restart=True):
        site.slurm.control("kill", "rightsizer")
        submitted = site.sbatch(LORA.format(24), hold=False)
        job = submitted.job["JobId"]
        assert submitted.job["Reason"] == "JobHeldUser"
        site.start()
        site.slurm.wait("the job runs sized", lambda: site.slurm.job(job)["JobState"] != "PENDING")
    assert "RIGHTSIZER_GPUS=1" in site.slurm.job(job)["Comment"]
    assert site.slurm.job(job)["TresPerNode"] == "gres:gpu:h100:1"


@pytest.fixture(scope="module")
def enforcing(slurm: Any, site_of: Any) -> Iterator[Any]:
    """The partition a100 enforces; h100 only sizes."""
    site = site_of(slurm)
    with site.settings("\n[partition a100]\nmode = enforce\n"):
        yield site
        slurm.cancel_all()


@pytest.mark.parametrize(
    ("comment", "options", "said"),
    [
        ("", ("--gres=gpu:4",), NO_SIZE),
        ("", ("--exclusive",), NO_SIZE),
        ("rightsizer: run=x", ("--gres=gpu:4",), DENIED),
        ("rightsizer: plan=/nowhere.yaml run=x", ("--gres=gpu:4",), DENIED),
        (LORA.format(24), ("--ntasks=4", "--gpus-per-task=1"), DENIED),
        ("rightsizer: modle=x", (), NO_SIZE),
    ],
)
def test_no_form_of_request_gets_around_it(
    enforcing: Any, comment: str, options: tuple[str, ...], said: str
) -> None:
    submitted = enforcing.sbatch(comment, "--partition=a100", *options, user="nobody")
    assert (submitted.job, said in submitted.said) == (None, True), submitted.said


@pytest.mark.parametrize("options", [("--gres=gpu:4",), ("--exclusive",)], ids=" ".join)
@pytest.mark.parametrize("comment", ["", LORA.format(24)], ids=["silent", "comment"])
def test_srun_does_not_get_around_it(enforcing: Any, comment: str, options: tuple[str, ...]) -> None:
    ran = enforcing.slurm.ask(
        "srun", "--partition=a100", *options, f"--comment={comment}", "true", user="nobody", cwd="/"
    )
    assert (ran.returncode != 0, "rightsizer: " in ran.stderr) == (True, True), ran.stderr


def test_a_job_that_rightsizer_sized_may_have_what_its_plan_needs(enforcing: Any) -> None:
    path = enforcing.folder / "plan.yaml"
    path.write_text(PLAN)
    comment = f"rightsizer: plan={path} run={enforcing.folder}"
    options = ("--partition=a100", "--nodes=1")
    enforcing.sbatch(comment, *options, "--gres=gpu:1")  # the engine knows the model from now on
    assert enforcing.sbatch(comment, *options, "--gres=gpu:1").job is not None
    greedy = enforcing.sbatch(comment, *options, "--gres=gpu:4")
    assert (greedy.job, "asks for 4 GPUs, its plan needs 1" in greedy.said) == (None, True), greedy.said


@pytest.mark.parametrize(
    ("options", "update"),
    [
        (("--partition=h100", "--gres=gpu:4"), "Partition=a100"),
        (("--partition=h100", "--exclusive"), "Partition=a100"),
        (("--partition=a100",), "TresPerNode=gres:gpu:4"),
        (("--partition=a100",), "Shared=no"),
        (("--partition=a100", "--nodes=1"), "NumNodes=2-2"),
    ],
)
def test_an_update_does_not_get_around_it(enforcing: Any, options: tuple[str, ...], update: str) -> None:
    submitted = enforcing.sbatch("", *options, user="nobody")
    job = f"JobId={submitted.job['JobId']}"
    updated = enforcing.slurm.ask("scontrol", "update", job, update, user="nobody", cwd="/")
    assert (updated.returncode != 0, DENIED in updated.stderr) == (True, True), updated.stderr
    enforcing.slurm.run("scontrol", "update", job, "TimeLimit=5", user="nobody", cwd="/")
    enforcing.slurm.run("scontrol", "update", job, update)  # an administrator may


def test_a_held_job_is_not_released_before_it_is_sized(enforcing: Any) -> None:
    with enforcing.settings(hold_after_s=0, refresh_s=600, restart=True):
        enforcing.slurm.control("end", "slurmctld")  # the daemon never reads the cluster, so it sizes nothing
        enforcing.restart()
        enforcing.slurm.control("start", "slurmctld")
        enforcing.slurm.wait("Slurm answers", lambda: enforcing.slurm.ask("scontrol", "ping").returncode == 0)
        submitted = enforcing._sbatch(
            LORA.format(24), "--partition=a100", "--gres=gpu:4", user="nobody", hold=False
        )
        released = enforcing.slurm.ask("scontrol", "release", submitted.job["JobId"], user="nobody", cwd="/")
    assert (released.returncode != 0, DENIED in released.stderr) == (True, True), released.stderr
