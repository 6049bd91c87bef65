"""Jobs that are held until they are sized; bursts; restarts of either daemon. Nothing twice, nothing lost."""

import concurrent.futures
import dataclasses
import os
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

COMMENT = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
DENSE = "rightsizer: model=llama-3.1-8b tokens=10B deadline={}h"


@pytest.fixture(scope="module")
def holding(slurm: Any, site_of: Any) -> Any:
    """The site with a daemon that has sized nothing yet."""
    site = dataclasses.replace(site_of(slurm), again=False)
    site.restart()
    return site


@pytest.fixture
def slow(holding: Any) -> Iterator[Any]:
    """That site, without jobs. It remembers the sizes that earlier tests asked for."""
    yield holding
    holding.slurm.cancel_all()
    holding.idle()


def _settled(site: Any, job: str) -> int:
    """The number of log lines in which the daemon finished with a job."""
    return len(re.findall(rf"job {job}, ticket \w+: ", site.log()))


def _sized(site: Any, job: str) -> bool:
    return "nodes=" in site.slurm.job(job).get("AdminComment", "")


def test_a_held_job_that_its_owner_releases_is_left_alone(site: Any) -> None:
    site = dataclasses.replace(site, again=False)
    with site.blind():  # so that the daemon cannot act before the owner does
        submitted = site.sbatch(COMMENT, "--nodes=2", hold=False)
        site.slurm.run("scontrol", "release", submitted.job["JobId"])
        site.slurm.wait("it runs", lambda: site.slurm.job(submitted.job["JobId"])["JobState"] != "PENDING")
        assert "node=2" in site.slurm.job(submitted.job["JobId"])["TRES"]


SCRIPT = 'echo "torchrun --nnodes=$RIGHTSIZER_NODES --nproc-per-node=$RIGHTSIZER_GPUS_PER_NODE"'
UNSIZED = "rightsizer: not sized: rightsizer was stopped ({} GPUs of each of 2 nodes, as the job was written)"


@pytest.mark.parametrize(
    ("options", "lines", "state"),
    [
        ((), [UNSIZED.format(0), "rightsizer: without GPUs the job ends; submit it again"], "FAILED"),
        (("--gres=gpu:h100:4",), [UNSIZED.format(4), "torchrun --nnodes=2 --nproc-per-node=4"], "COMPLETED"),
        (
            ("--gpus=4",),
            [
                UNSIZED.format(3),
                "rightsizer: on nodes with unlike numbers of GPUs the job ends; submit it again",
            ],
            "FAILED",
        ),
    ],
    ids=["no GPUs", "GPUs of nodes", "GPUs of the job"],
)
def test_a_job_released_by_the_daemons_end_notes_it_and_runs_on_its_own_gpus_or_ends(
    site: Any, options: tuple[str, ...], lines: list[str], state: str
) -> None:
    output = site.folder / "output"
    output.unlink(missing_ok=True)
    argv = ("sbatch", "--parsable", "--nodes=2", *options, f"--output={output}", f"--comment={COMMENT}")
    with site.blind():
        job = site.answered(*argv, f"--wrap={SCRIPT}").stdout.strip()
        site.slurm.control("end", "rightsizer")
        site.slurm.wait("the job ends", lambda: site.slurm.job(job)["JobState"] == state)
    assert output.read_text().splitlines() == lines


def test_a_failed_submit_costs_slurm_few_requests(site: Any) -> None:
    def wrong(attempt: int) -> tuple[str, ...]:
        return (
            "sbatch",
            "--nodelist=nowhere",
            f"--comment={DENSE.format(71 + attempt / 100)}",
            "--wrap=true",
        )

    done = site.in_time(wrong)
    assert ("the job is held" in done.stderr, "Invalid node name" in done.stderr) == (True, True), done.stderr
    site.slurm.run("sdiag", "--reset")
    time.sleep(20)
    looks = re.search(r"REQUEST_JOB_INFO .*count:(\d+)", site.slurm.run("sdiag"))
    assert int(looks[1]) < 20  # the monitor takes four; one each half second would be forty


def test_requests_are_served_while_slurmctld_is_down_and_after(site: Any) -> None:
    before = site.sbatch(COMMENT)
    failed = "the cluster cannot be read: "
    earlier = site.log().count(failed)
    site.slurm.control("end", "slurmctld")
    site.slurm.wait("the daemon has missed it", lambda: site.log().count(failed) > earlier)
    site.slurm.control("start", "slurmctld")
    site.slurm.wait("Slurm answers", lambda: site.slurm.ask("scontrol", "ping").returncode == 0)
    after = site.sbatch(COMMENT)
    assert after.job["TresPerNode"] == before.job["TresPerNode"]


def test_a_burst_of_submits_has_no_timeout_and_no_duplicate(site: Any) -> None:
    count = int(os.environ.get("RIGHTSIZER_BURST", "200"))
    argv = ("sbatch", "--hold", "--parsable", "--output=/dev/null", "--wrap=true", f"--comment={COMMENT}")

    def submit(index: int) -> tuple[int, str, str]:
        done = site.slurm.ask(*argv, f"--job-name=burst-{index}", cwd="/")
        return done.returncode, done.stdout.strip(), done.stderr

    first = site.sbatch(COMMENT)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(submit, range(count)))
    assert [said for code, _, said in answers if code != 0] == []

    def burst() -> list[list[str]]:
        names = site.slurm.run("squeue", "--noheader", "--format=%j|%b").split()
        return [name.split("|") for name in names if name.startswith("burst-")]

    assert len(burst()) == len({name for name, _ in burst()}) == count
    # what could not be sized in time is held, and sized soon
    wanted = {first.job["TresPerNode"]}
    site.slurm.wait("all are sized", lambda: {gres for _, gres in burst()} == wanted, within_s=120)


def test_a_job_whose_size_takes_too_long_is_held_then_sized_and_released(slow: Any) -> None:
    submitted = slow.unknown(DENSE, "--time=7-0", hours=24)
    job = submitted.job["JobId"]
    assert "the job is held (JobHeldUser) and released when it is sized" in submitted.said
    slow.slurm.wait("the job is sized", lambda: _sized(slow, job))
    slow.slurm.wait("the job starts", lambda: slow.slurm.job(job)["JobState"] != "PENDING")
    found = slow.slurm.job(job)
    nodes = re.search(r"nodes=(\d+) gpus=(\d+)", found["AdminComment"])
    assert re.search(r"node=(\d+)", found["TRES"])[1] == nodes[1]
    assert found["TresPerNode"] == f"gres:gpu:h100:{int(nodes[2]) // int(nodes[1])}"
    assert found["NumTasks"] == nodes[1]


def test_a_job_that_its_user_holds_is_sized_and_stays_held(slow: Any) -> None:
    submitted = slow.sbatch(COMMENT)
    slow.slurm.wait("the job is sized", lambda: _sized(slow, submitted.job["JobId"]))
    time.sleep(1)
    assert slow.slurm.job(submitted.job["JobId"])["Reason"] == "JobHeldUser"


def test_a_job_that_cannot_be_sized_ends_with_its_reason(slow: Any) -> None:
    submitted = slow.unknown(DENSE, hours=1)
    ended = slow.settled(submitted)
    assert (ended.job, " refused: no plan: deadline" in ended.said) == (None, True), ended.said


def test_a_salloc_whose_job_cannot_be_sized_ends_with_the_reason(slow: Any) -> None:
    done = slow.in_time(lambda n: ("salloc", f"--comment={DENSE.format(0.9 + n / 1000)}", "true"))
    assert (done.returncode, "rightsizer: refused: no plan: deadline" in done.stderr) == (1, True), (
        done.stderr
    )


def test_a_held_salloc_gets_its_size_once_and_starts(slow: Any) -> None:
    done = slow.in_time(
        lambda n: ("salloc", "--time=7-0", f"--comment={DENSE.format(60 + n / 100)}", "sleep", "8")
    )
    lines = [line for line in done.stderr.splitlines() if "rightsizer:" in line]
    assert ("the job is held" in lines[0], "done in" in lines[1], len(lines)) == (True, True, 2), done.stderr


def test_a_comment_that_is_wrong_is_refused_at_once_though_sizing_is_slow(slow: Any) -> None:
    assert slow.sbatch("rightsizer: modle=x tokens=1B").job is None


def test_held_jobs_are_sized_after_a_restart_of_either_daemon(slow: Any) -> None:
    jobs = [slow.unknown(DENSE, hours=hours).job["JobId"] for hours in (30, 36, 48)]
    slow.slurm.control("kill", "rightsizer")
    slow.slurm.control("end", "slurmctld")
    slow.slurm.control("start", "slurmctld")
    slow.start()
    for job in jobs:
        slow.slurm.wait("each job is sized", lambda job=job: _settled(slow, job) > 0)
    time.sleep(2)
    assert [_settled(slow, job) for job in jobs] == [1, 1, 1]
    unsized = [job for job in jobs if not _sized(slow, job)]
    assert not unsized, [line for line in slow.log().splitlines() if any(f"job {j}," in line for j in jobs)]
