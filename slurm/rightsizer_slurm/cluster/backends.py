"""The interface to one Slurm cluster, and the choice of its implementation.

`SlurmCommands` (squeue, scontrol, scancel) works with every Slurm; `Pyslurm` uses Slurm's library if the
installed pyslurm matches the cluster's release. Size changes always use scontrol: pyslurm's `modify` silently
drops the node count.
"""

import importlib.metadata
from collections.abc import Callable
from typing import Protocol

from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import SlurmError
from rightsizer_slurm.cluster.snapshot import SlurmCluster

_UNAVAILABLE = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connect failure",
    "controller not responding",
    "communication connection failure",
)


class Backend(Protocol):
    """One cluster. Every method raises SlurmError with Slurm's message."""

    name: str

    def version(self) -> tuple[int, int]:
        """The cluster's Slurm release, for example (22, 5)."""

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Every job that this user may see, also ended ones that Slurm still remembers."""

    def job(self, job_id: int) -> SlurmJob | None:
        """One job; None if Slurm no longer knows it."""

    def cluster(self) -> SlurmCluster:
        """Partitions and nodes."""

    def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Requeue a running job; with `hold` it stays pending until it is released."""

    def release(self, job_id: int) -> None:
        """Release a held job."""

    def resize(self, job_id: int, *, nodes: int, tasks: int, cpus: int) -> None:
        """Resize a pending job in one update; changing only one of the three leads to BadConstraints."""

    def shrink(self, job_id: int, *, nodes: int) -> None:
        """Remove nodes from a running job; its batch host stays."""

    def annotate(self, job_id: int, note: str) -> None:
        """Write a note into a job's AdminComment (`jobs.noted`); needs the rights of a Slurm operator."""

    def signal_script(self, job_id: int, name: str) -> None:
        """Signal the batch script only."""

    def notify(self, job_id: int, text: str) -> None:
        """Write a line to the job's output."""


def unavailable(error: SlurmError) -> bool:
    """True if Slurm did not respond, so that the command may be retried."""
    return error.code is None or any(text in error.detail.lower() for text in _UNAVAILABLE)


def pyslurm_version() -> str:
    """The version of the installed pyslurm, empty without one. Imports nothing."""
    try:
        return importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def fits(installed: str, slurm: tuple[int, int]) -> bool:
    """Whether a pyslurm is built for a Slurm release: the first two parts of the versions are equal."""
    parts = installed.split(".")
    return len(parts) >= 2 and all(p.isdigit() for p in parts[:2]) and (int(parts[0]), int(parts[1])) == slurm


def choose(
    wanted: str = "auto", *, commands: Backend, pyslurm: Callable[[], Backend], installed: str | None = None
) -> Backend:
    """The backend "commands" or "pyslurm"; "auto" is pyslurm if it is installed, matches and imports.

    `installed` is pyslurm's version, looked up by default; `pyslurm` creates that backend.
    """
    if wanted == "commands":
        return commands
    version = pyslurm_version() if installed is None else installed
    slurm = commands.version()
    if wanted == "auto" and not fits(version, slurm):
        return commands
    if not fits(version, slurm):
        have = f"pyslurm {version}" if version else "no pyslurm"
        raise SlurmError("pyslurm", f"{have} is installed; Slurm here is {slurm[0]}.{slurm[1]:02}")
    try:
        return pyslurm()
    except ImportError as error:
        if wanted == "auto":
            return commands
        raise SlurmError("pyslurm", str(error)) from None
