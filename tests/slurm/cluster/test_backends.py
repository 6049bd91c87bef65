"""pyslurm is used only if its version matches; a choice by name fails with the reason."""

from types import SimpleNamespace

import pytest

from rightsizer_slurm.cluster.backend_pyslurm import Pyslurm, job_of
from rightsizer_slurm.cluster.backends import choose, fits, unavailable
from rightsizer_slurm.cluster.slurm_cli import SlurmError


class SlurmOf:
    """A stand-in: a cluster's version is all that is asked."""

    name = "commands"

    def __init__(self, version):
        self._version = version

    def version(self):
        return self._version


def missing():
    raise ImportError("libslurm.so.44: cannot open shared object file")


@pytest.mark.parametrize(
    ("installed", "slurm", "fitting"),
    [("25.11.2", (25, 11), True), ("25.11.2", (22, 5), False), ("22.5.3", (22, 5), True),
     ("", (22, 5), False), ("dev", (1, 2), False)],
    ids=str,
)  # fmt: skip
def test_it_fits_the_release_it_is_made_for(installed, slurm, fitting):
    assert fits(installed, slurm) is fitting


@pytest.mark.parametrize(
    ("wanted", "installed", "make", "chosen"),
    [
        ("auto", "25.11.2", lambda: "pyslurm", "pyslurm"),
        ("auto", "18.8.1", lambda: "pyslurm", "commands"),
        ("auto", "", missing, "commands"),
        ("auto", "25.11.2", missing, "commands"),
        ("commands", "25.11.2", missing, "commands"),
        ("pyslurm", "25.11.2", lambda: "pyslurm", "pyslurm"),
    ],
    ids=["fits", "too old", "none", "does not load", "commands asked", "pyslurm asked"],
)
def test_the_backend_that_fits_is_chosen(wanted, installed, make, chosen):
    backend = choose(wanted, commands=SlurmOf((25, 11)), pyslurm=make, installed=installed)
    assert getattr(backend, "name", backend) == chosen


@pytest.mark.parametrize(
    "installed", ["18.8.1", "", "25.11.2"], ids=["of another Slurm", "absent", "does not load"]
)
def test_pyslurm_requested_by_name_but_missing_is_an_error(installed):
    with pytest.raises(SlurmError, match="pyslurm"):
        choose("pyslurm", commands=SlurmOf((25, 11)), pyslurm=missing, installed=installed)


@pytest.mark.parametrize(
    ("message", "code", "gone"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1, True),
        ("no answer within 30 s", None, True),
        ("Requested node configuration is not available for job 7", 1, False),
    ],
    ids=["away", "slow", "refused"],
)
def test_an_unavailable_slurm_is_not_a_refusal(message, code, gone):
    assert unavailable(SlurmError("scontrol", message, code=code)) is gone


def raw_job(**more):
    """A stand-in with the attributes of pyslurm's Job that `job_of` reads, and those given."""
    names = (
        "state user_name user_id account state_reason partition allocated_nodes batch_host ntasks cpus"
        " comment admin_comment time_limit submit_time start_time end_time requeue_count is_requeueable"
        " priority array_id heterogeneous_id name is_batch_job"
    )
    return SimpleNamespace(**dict.fromkeys(names.split()), id=7, num_nodes=2, **more)


GPU = SimpleNamespace(count=16)


@pytest.mark.parametrize(
    ("more", "gpus"),
    [
        ({"gpus": {"gpu": GPU, "gpu:h100": GPU}}, ("h100", 16)),
        ({"gpus": {"gpu:h100": GPU}}, ("h100", 16)),
        ({"gpus": {"gpu": GPU}}, ("", 16)),
        ({"gpus": {}, "gres_per_node": {"gres/gpu:h100": 8}}, ("h100", 16)),
        ({"gres_per_node": {"gpu": 2}}, ("", 4)),
        ({}, ("", 0)),
    ],
    ids=["total and type", "type", "total", "no TRES", "before 25.11.2", "none"],
)
def test_a_job_s_gpus_are_read_from_every_release_of_pyslurm(more, gpus):
    job = job_of(raw_job(**more))
    assert (job.gpu_type, job.gpus) == gpus


def test_what_a_release_of_pyslurm_lacks_is_read_by_slurm_s_commands(fake_slurm):
    fake_slurm.prints("squeue", '{"jobs": [{"job_id": 7, "job_state": "RUNNING"}]}')
    jobs = SimpleNamespace(load=lambda: {7: SimpleNamespace(id=7)})
    backend = Pyslurm(SimpleNamespace(PyslurmError=OSError, Jobs=jobs), fake_slurm.slurm)
    assert [job.job_id for job in backend.jobs()] == [7]
    backend.release(7)
    assert fake_slurm.calls("scontrol") == ["release 7"]
