"""pyslurm is used only if its version matches; a choice by name fails with the reason."""

import pytest

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
def test_pyslurm_asked_for_by_name_and_not_there_is_an_error(installed):
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
