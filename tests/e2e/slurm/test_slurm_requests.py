"""Options beside the comment bind cached and held jobs alike, on a real Slurm."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}h"
SCRIPT = """\
#!/bin/bash
set -eu
echo "$RIGHTSIZER_GPUS_PER_NODE GPUs, $RIGHTSIZER_NODES nodes, tp $RIGHTSIZER_TP, cuda $CUDA_VISIBLE_DEVICES"
srun true && echo srun ran
"""
RAN = ["1 GPUs, 1 nodes, tp 1, cuda 0", "srun ran"]


def ran(site: Any, comment: str, *options: str, script: str = SCRIPT) -> tuple[list[str], dict[str, str]]:
    """The output of a job, and the job as Slurm remembers it.

    Without the line with its size, which the monitor adds if it looks while the job runs.
    """
    path, output = site.folder / "job.sh", site.folder / "output"
    path.write_text(script)
    argv = ("sbatch", "--parsable", f"--output={output}", *options, f"--comment={comment}", path)
    submitted = site.answered(*argv)
    assert "submitted unchanged" not in submitted.stderr, submitted.stderr
    job = submitted.stdout.strip()
    ended = {"COMPLETED", "FAILED"}
    site.slurm.wait("the job ends", lambda: site.slurm.job(job)["JobState"] in ended)
    lines = output.read_text().splitlines()
    return [line for line in lines if "error: rightsizer: sized: " not in line], site.slurm.job(job)


FORMS = [
    (),
    ("--gres=gpu:4",),
    ("--gres=gpu:h100:4",),
    ("--gpus-per-node=4",),
    ("--gpus=4",),
    ("--nodes=3", "--ntasks-per-node=1"),
]


@pytest.mark.parametrize("options", FORMS, ids=" ".join)
def test_a_sized_job_starts_its_steps_in_every_form_of_request(site: Any, options: tuple[str, ...]) -> None:
    site.sbatch(LORA.format(24), *options)  # its size is cached from now on
    assert ran(site, LORA.format(24), *options)[0] == RAN


def test_a_job_is_sized_whether_its_submit_waits_for_it_or_not(site: Any) -> None:
    with site.settings(
        on_fault="hold", restart=True, hold_after_s=0.15, why="some of the submits wait for their sizes"
    ):
        for hours in (50, 51):  # the second meets a daemon that may not have answered the first
            assert ran(site, LORA.format(hours))[0] == RAN


@pytest.fixture(scope="module")
def holding(slurm: Any, site_of: Any) -> Iterator[Any]:
    """The site with a daemon that has sized nothing yet."""
    site = dataclasses.replace(site_of(slurm), again=False)
    site.restart()
    yield site
    slurm.cancel_all()


@pytest.mark.parametrize("options", FORMS, ids=" ".join)
def test_a_held_job_gets_the_same_as_one_sized_at_once(holding: Any, options: tuple[str, ...]) -> None:
    output, job = ran(holding, LORA.format(25 + FORMS.index(options)), *options)
    assert output == RAN
    assert job["TresPerNode"] == "gres:gpu:h100:1"
    assert "nodes=1 gpus=1" in job["AdminComment"]


def test_other_generic_resources_stay_beside_the_gpus_of_a_size(site: Any) -> None:
    """Only nodes of the partition a100 have an nvme."""
    job = site.sbatch(LORA.format(24), "--gres=gpu:2,nvme:1").job
    assert (job["Partition"], job["TresPerNode"]) == ("a100", "gres:gpu:a100:1,gres:nvme:1")


def test_a_held_job_keeps_its_other_generic_resources(holding: Any) -> None:
    output, job = ran(holding, LORA.format(42), "--gres=nvme:1,gpu:2")
    assert (output, job["TresPerNode"]) == (RAN, "gres:gpu:a100:1,gres:nvme:1")


AUDIT = """
local sized = slurm_job_submit
function slurm_job_submit(job, parts, uid)
   local code = sized(job, parts, uid)
   job.admin_comment = "audit=7"
   return code
end

return slurm.SUCCESS
"""


def test_what_another_plugin_writes_into_the_admin_comment_stays(holding: Any) -> None:
    before = holding.conf.with_name("job_submit.lua").read_text()
    try:
        holding.reload(before.removesuffix("\nreturn slurm.SUCCESS\n") + AUDIT)
        job = holding.sbatch(LORA.format(40)).job["JobId"]
        holding.slurm.wait("it is sized", lambda: "nodes=1" in holding.slurm.job(job)["AdminComment"])
    finally:
        holding.reload(before)
    assert holding.slurm.job(job)["AdminComment"].startswith("audit=7 [rightsizer/1 nodes=1")


def test_a_script_of_another_language_finds_the_variables_in_the_comment(holding: Any) -> None:
    output, job = ran(holding, LORA.format(41), script="#!/usr/bin/python3\nprint('ran')\n")
    assert output == ["ran"]
    assert "RIGHTSIZER_GPUS_PER_NODE=1" in job["Comment"]


@pytest.fixture
def reserved(site: Any) -> Iterator[Any]:
    """The site with two reservations: a node of another partition, and two nodes for two hours."""
    for name, nodes, minutes in (("other", "a1", 600), ("brief", "n[3-4]", 120)):
        when = ("starttime=now", f"duration={minutes}", "users=root", f"nodes={nodes}")
        site.slurm.run("scontrol", "create", "reservation", f"ReservationName={name}", *when)
    site.restart()  # it reads reservations when it starts
    yield site
    site.slurm.cancel_all()
    for name in ("other", "brief"):
        site.slurm.run("scontrol", "delete", f"ReservationName={name}")


@pytest.mark.parametrize(
    ("options", "gres", "field", "value"),
    [
        (("--nodelist=n3",), "gpu:h100:1", "ReqNodeList", "n3"),
        (("--exclude=n[1-4]",), "gpu:a100:1", "Partition", "a100"),
        (("--constraint=a100",), "gpu:a100:1", "Partition", "a100"),
        (("--mem-per-cpu=100G",), "gpu:h100:1", "NumCPUs", "1"),
        (("--ntasks-per-node=4",), "gpu:h100:4", "NumTasks", "4"),
        (("--ntasks=4",), "gpu:h100:4", "NumTasks", "4"),
        (("--nodes=3", "--ntasks=3"), "gpu:h100:1", "NumTasks", "1"),
        (("--exclusive",), "gpu:h100:8", "NumNodes", "1"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_the_user_s_options_bound_the_size(
    site: Any, options: tuple[str, ...], gres: str, field: str, value: str
) -> None:
    submitted = site.sbatch(LORA.format(24), *options)
    assert submitted.job["TresPerNode"] == f"gres:{gres}", submitted.said
    assert submitted.job[field].split("-")[0] == value


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--nodelist=n3,n4",), "1 nodes are enough"),
        (("--constraint=[a100|h100]",), "only a&b and a|b are understood"),
        (("--gpus=4", "--cpus-per-gpu=2"), "--cpus-per-gpu are not sized"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_job_that_is_not_understood_runs_unchanged(site: Any, options: tuple[str, ...], said: str) -> None:
    submitted = site.sbatch(LORA.format(24), *options)
    assert (submitted.job is not None, said in submitted.said) == (True, True), submitted.said
    assert "TresPerNode" not in submitted.job


def test_memory_that_no_node_has_is_refused_by_its_option(site: Any) -> None:
    submitted = site.sbatch(LORA.format(24), "--mem=600G")
    assert (submitted.job, "--mem: leaves no node with GPUs" in submitted.said) == (None, True)


def test_a_reservation_and_a_deadline_bound_nodes_and_time(reserved: Any) -> None:
    site = reserved
    other = site.sbatch(LORA.format(24), "--reservation=other")
    assert (other.job["Partition"], other.job["TresPerNode"]) == ("a100", "gres:gpu:a100:1"), other.said
    brief = site.sbatch(LORA.format(24), "--reservation=brief")
    assert brief.job["TimeLimit"] < "02:00:00", brief.said
    script = "#!/bin/bash\n#SBATCH --deadline=now+2hours\ntrue\n"
    assert ran(site, LORA.format(24), script=script)[1]["JobState"] == "COMPLETED"


def test_a_held_job_is_not_lost_to_its_deadline(holding: Any) -> None:
    output, job = ran(holding, LORA.format(60), "--deadline=now+2hours")
    assert (output[-1], job["TimeLimit"] < "02:00:00") == ("srun ran", True), job
