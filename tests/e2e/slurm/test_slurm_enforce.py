"""Ways around `enforce`, and jobs that cannot be sized, on a real Slurm."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
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
SMALL = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 10M, sequenceLength: 128, globalBatchSequences: 16}
  deadline: {finishWithin: 100h}
  launch: {framework: ddp, command: [train.py]}
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
def test_slurms_error_names_the_kind_of_refusal(
    site: Any, comment: str, options: tuple[str, ...], said: str
) -> None:
    submitted = site.sbatch(comment, *options)
    assert (submitted.job, said in submitted.said) == (None, True), submitted.said


@pytest.mark.parametrize("policy", ["as-written", "refuse"])
def test_a_job_of_a_comment_only_follows_the_sites_on_fault(site: Any, policy: str) -> None:
    with site.settings(on_fault=policy, socket="/nowhere/plan.sock"):
        alone = site.sbatch(LORA.format(24))
        stated = site.sbatch(LORA.format(24), "--nodes=2")
    assert (alone.job is None) == (policy == "refuse")
    assert stated.tres["node"] == "2"
    log = (site.conf.parent.parent / "log" / "slurmctld.log").read_text()
    assert f", {policy}; fault " in log


def test_a_job_that_the_plugin_held_is_sized_when_the_daemon_is_back(site: Any) -> None:
    with site.settings(on_fault="hold", restart=True):
        site.slurm.control("kill", "rightsizer")
        submitted = site.sbatch(LORA.format(24), hold=False)
        job = submitted.job["JobId"]
        assert submitted.job["Reason"] == "JobHeldUser"
        site.start()
        site.slurm.wait("the job runs sized", lambda: site.slurm.job(job)["JobState"] != "PENDING")
    assert "RIGHTSIZER_GPUS=1" in site.slurm.job(job)["Comment"]
    assert site.slurm.job(job)["TresPerNode"].endswith("gpu:h100:1")


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
        ("rightsizer: run=x", ("--gres=gpu:4",), NO_SIZE),
        ("rightsizer: plan=/nowhere.yaml run=x", ("--gres=gpu:4",), "cannot be read by the daemon"),
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
    fitting = enforcing.sbatch(comment, *options, "--gres=gpu:1")
    assert (fitting.job["TresPerNode"][5:], fitting.job["Comment"].strip()) == ("gpu:1", comment)
    assert "nodes=1 gpus=1" in fitting.job["AdminComment"]
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


GPUS = ("--partition=a100", "--nodes=2", "--gres=gpu:4")
TOO_LATE = "rightsizer: model=llama-3.1-8b tokens=10B deadline={}h"


def allowed(site: Any, job: str, *argv: str) -> bool:
    """Whether a job's owner may do this with it."""
    done = site.slurm.ask(*argv, job, user="nobody", cwd="/")
    assert done.returncode == 0 or "denied" in done.stderr or "disabled" in done.stderr, done.stderr
    return bool(done.returncode == 0)


def release_attempts(site: Any, job: str) -> list[bool]:
    """The attempts of a held job's owner, and whether they succeed."""
    update = ("scontrol", "update", "Comment=mine", "JobId=" + job)
    edited = site.slurm.ask(*update, user="nobody", cwd="/").returncode == 0
    return [edited, allowed(site, job, "scontrol", "release")]


def test_a_held_job_is_not_released_before_it_is_sized(enforcing: Any) -> None:
    with enforcing.blind():
        submitted = enforcing.submit(LORA.format(24), *GPUS, user="nobody")
        job = submitted.job["JobId"]
        assert release_attempts(enforcing, job) == [False, False]
        enforcing.slurm.run("scontrol", "update", f"JobId={job}", "Comment=lost")  # an administrator may
        assert release_attempts(enforcing, job)[1:] == [False]


def test_a_refused_job_ends_with_its_reason_and_its_owner_cannot_run_it(enforcing: Any) -> None:
    submitted = enforcing.unknown(TOO_LATE, *GPUS, hours=0.52, user="nobody")
    job = submitted.job["JobId"]
    refused = enforcing.settled(submitted)
    assert (refused.job, " refused: no plan: deadline" in refused.said) == (None, True), refused.said
    again = enforcing.slurm.ask("scontrol", "requeue", job, user="nobody", cwd="/")
    assert "Requested operation is presently disabled" in again.stderr
    assert enforcing.slurm.job(job)["JobState"] == "CANCELLED"


def test_a_job_that_its_owner_cancels_and_requeues_stays_held(enforcing: Any) -> None:
    with enforcing.blind():
        job = enforcing.submit(LORA.format(24), *GPUS, user="nobody").job["JobId"]
        assert [allowed(enforcing, job, *verb) for verb in (("scancel",), ("scontrol", "requeue"))] == [
            True,
            True,
        ]
        assert not allowed(enforcing, job, "scontrol", "release")
        assert enforcing.slurm.job(job)["JobState"] == "PENDING"


def hung(site: Any) -> None:
    """A frozen daemon: one submit waits for it, those after it do not."""
    site.slurm.control("stop", "rightsizer")
    site.submit(LORA.format(24), "--partition=h100")


def without_settings(site: Any) -> None:
    """slurmctld starts again without rightsizer.conf."""
    site.slurm.control("kill", "rightsizer")
    site.slurm.control("end", "slurmctld")
    site.conf.unlink()
    site.slurm.control("start", "slurmctld")
    site.slurm.wait("Slurm answers", lambda: site.slurm.ask("scontrol", "ping").returncode == 0)


def half_a_plugin(site: Any) -> None:
    """An update that ended half way."""
    half = site.conf.with_name("rightsizer.lua")
    half.rename(half.with_suffix(".away"))
    site.reload()


FAULTS = {
    "no daemon": lambda site: site.slurm.control("kill", "rightsizer"),
    "hung daemon": hung,
    "empty settings": lambda site: (site.slurm.control("kill", "rightsizer"), site.conf.write_text("")),
    "no settings": without_settings,
    "half a plugin": half_a_plugin,
}


@pytest.fixture
def mended(enforcing: Any) -> Iterator[Any]:
    """That site; what a test breaks is mended at its end."""
    text = enforcing.conf.read_text()
    yield enforcing
    half = enforcing.conf.with_name("rightsizer.away")
    if half.exists():
        half.rename(half.with_suffix(".lua"))
    enforcing.conf.write_text(text)
    enforcing.reload()
    enforcing.restart()
    enforcing.slurm.cancel_all()


@pytest.mark.parametrize("policy", ["as-written", "refuse"])
@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_no_fault_opens_an_enforced_partition_or_closes_another(
    mended: Any, fault: Callable[[Any], Any], policy: str
) -> None:
    with mended.settings(on_fault=policy):
        mended.sbatch("")  # the plugin has read its settings
        fault(mended)
        mended.seen()
        gpus = mended.submit(LORA.format(20), *GPUS, user="nobody")
        cores = mended.submit("", "--partition=a100", user="nobody")
        other = mended.submit(LORA.format(20), "--partition=h100", *GPUS[1:], user="nobody")
    assert gpus.job is None or gpus.job["Reason"] == "JobHeldUser", gpus
    assert "rightsizer: " in gpus.said
    assert gpus.job is None or not allowed(mended, gpus.job["JobId"], "scontrol", "release")
    assert cores.job["Reason"] != "JobHeldUser"
    assert (other.job["Reason"] != "JobHeldUser", other.tres["node"]) == (True, "2"), other


def test_a_job_that_waited_for_the_daemon_is_sized_within_its_users_options(mended: Any) -> None:
    mended.slurm.control("kill", "rightsizer")
    options = ("--partition=a100", "--nodelist=a2", "--gres=gpu:3")
    job = mended.submit(LORA.format(19), *options, user="nobody").job["JobId"]
    mended.start()
    mended.slurm.wait("it runs", lambda: mended.slurm.job(job)["JobState"] != "PENDING")
    found = mended.slurm.job(job)
    assert (found["TresPerNode"][5:], found["NodeList"]) == ("gpu:a100:1", "a2")


def test_rightsizer_sbatch_submits_where_sizes_are_enforced(enforcing: Any, tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=enforcing.folder))
    folder.chmod(0o755)
    (folder / "plan.yaml").write_text(SMALL)

    def submitted(number: int, *more: str) -> str:
        argv = ("sbatch", "plan.yaml", f"--dir=run{number}", "--partition=a100", *more)
        done = subprocess.run(
            [Path(sys.executable).with_name("rightsizer"), *argv],
            check=False, capture_output=True, text=True, cwd=folder,
            env={**enforcing.slurm.environment, "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split(":")[0].removeprefix("job ")

    jobs = [submitted(number) for number in range(5)]
    greedy = submitted(5, "--", "--gres=gpu:a100:4")
    for job in jobs:
        enforcing.slurm.wait("it starts", lambda job=job: enforcing.slurm.job(job)["JobState"] != "PENDING")
        assert enforcing.slurm.job(job)["JobState"] != "CANCELLED", enforcing.slurm.job(job)["Comment"]
    enforcing.slurm.wait("it ends", lambda: enforcing.slurm.job(greedy)["JobState"] == "CANCELLED")
    assert "refused: the job asks for 4 GPUs, its plan needs 1" in enforcing.slurm.job(greedy)["Comment"]
