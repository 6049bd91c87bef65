"""The door to one Slurm cluster: what may be read and done, by whichever backend fits.

`SlurmCommands` (squeue, scontrol, scancel) works with every Slurm; `Pyslurm` reads and steers through
Slurm's library where the pyslurm that is installed is made for the cluster's version. Sizes always go through
scontrol: pyslurm's `modify` sends no node count, and says nothing of it.
"""

import importlib.metadata
from collections.abc import Callable
from typing import Protocol

from rightsizer_slurm.cluster.jobs import Job
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.cluster.snapshot import Cluster

__all__ = ["Backend", "away", "choose", "fits", "pyslurm_version"]

_AWAY = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connect failure",
    "controller not responding",
    "communication connection failure",
)


class Backend(Protocol):
    """One cluster. Every verb raises SlurmError with Slurm's own words."""

    name: str

    def version(self) -> tuple[int, int]:
        """The cluster's Slurm, such as (22, 5)."""

    def jobs(self) -> tuple[Job, ...]:
        """Every job that this user may see, ended ones too while Slurm remembers them."""

    def job(self, job_id: int) -> Job | None:
        """One job; None where Slurm knows it no more."""

    def cluster(self) -> Cluster:
        """Partitions and nodes."""

    def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Stop a running job and let it wait again; with `hold` until it is released."""

    def hold(self, job_id: int) -> None:
        """Keep a waiting job from starting."""

    def release(self, job_id: int) -> None:
        """Let a held job start."""

    def resize(self, job_id: int, *, nodes: int, tasks: int, cpus: int) -> None:
        """Change what a waiting job asks for, all three in one update: any one alone is BadConstraints."""

    def shrink(self, job_id: int, *, nodes: int) -> None:
        """Take nodes away from a running job; its batch host stays."""

    def annotate(self, job_id: int, text: str) -> None:
        """Replace a job's AdminComment; wants an operator's rights."""

    def signal_script(self, job_id: int, name: str) -> None:
        """Send a signal to the batch script alone."""

    def notify(self, job_id: int, text: str) -> None:
        """Write a line where the job's output goes."""


def away(error: SlurmError) -> bool:
    """Whether nobody answered, which says nothing of the question: ask again later."""
    return error.code is None or any(words in error.detail.lower() for words in _AWAY)


def pyslurm_version() -> str:
    """The installed pyslurm, empty where there is none. Nothing is imported."""
    try:
        return importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def fits(installed: str, slurm: tuple[int, int]) -> bool:
    """Whether a pyslurm is made for a Slurm: the first two parts of both versions are equal."""
    parts = installed.split(".")
    return len(parts) >= 2 and all(p.isdigit() for p in parts[:2]) and (int(parts[0]), int(parts[1])) == slurm


def choose(
    wanted: str = "auto", *, commands: Backend, pyslurm: Callable[[], Backend], installed: str | None = None
) -> Backend:
    """The backend: "commands", "pyslurm", or "auto": pyslurm where one that fits is installed and imports.

    `installed` is pyslurm's version, looked up unless given; `pyslurm` makes that backend (and imports it).
    """
    if wanted == "commands":
        return commands
    found = pyslurm_version() if installed is None else installed
    slurm = commands.version()
    if wanted == "auto" and not fits(found, slurm):
        return commands
    if not fits(found, slurm):
        have = f"pyslurm {found}" if found else "no pyslurm"
        raise SlurmError("pyslurm", f"{have} is installed; Slurm here is {slurm[0]}.{slurm[1]:02}")
    try:
        return pyslurm()
    except ImportError as error:
        if wanted == "auto":
            return commands
        raise SlurmError("pyslurm", str(error)) from None
