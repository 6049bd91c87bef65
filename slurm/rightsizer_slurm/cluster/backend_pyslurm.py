"""The backend on pyslurm, for a pyslurm built for the cluster's Slurm release.

pyslurm (GPL-2.0) is imported only here, and only if this backend is chosen. Size changes use scontrol:
pyslurm's `modify` sends no node count.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rightsizer_api.untrusted_text import one_line
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.backends import Backend
from rightsizer_slurm.cluster.jobs import PENDING, SlurmJob, gres_gpus
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError

T = TypeVar("T")

_OTHER_API = (AttributeError, TypeError, ValueError)
"""What another release of pyslurm raises where it lacks or renames something."""


def backend(slurm: Slurm | None = None) -> Backend:
    """The backend; ImportError if pyslurm is missing or does not load."""
    return Pyslurm(importlib.import_module("pyslurm"), slurm)


class Pyslurm(SlurmCommands):
    """Reads, requeues, releases and notifies through pyslurm; the rest uses Slurm's commands."""

    name = "pyslurm"

    def __init__(self, library: Any, slurm: Slurm | None = None) -> None:
        """`library` is the module pyslurm."""
        super().__init__(slurm)
        self._library = library

    def version(self) -> tuple[int, int]:
        """The Slurm release of this pyslurm, which is the cluster's."""
        major, minor = str(self._library.__version__).split(".")[:2]
        return int(major), int(minor)

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Every job that slurmctld remembers."""
        return self._call(
            "load jobs",
            lambda: tuple(job_of(raw) for raw in self._library.Jobs.load().values()),
            lambda: SlurmCommands.jobs(self),
        )

    def job(self, job_id: int) -> SlurmJob | None:
        """One job."""
        try:
            return self._call(
                "load job",
                lambda: job_of(self._library.Job.load(job_id)),
                lambda: SlurmCommands.job(self, job_id),
            )
        except SlurmError as error:
            if "Invalid job id" in error.detail:
                return None
            raise

    def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Requeue, held or not."""
        self._call(
            "requeue",
            lambda: self._library.Job(job_id).requeue(hold=hold),
            lambda: SlurmCommands.requeue(self, job_id, hold=hold),
        )

    def release(self, job_id: int) -> None:
        """Release."""
        self._call(
            "release",
            lambda: self._library.Job(job_id).release(),
            lambda: SlurmCommands.release(self, job_id),
        )

    def notify(self, job_id: int, text: str) -> None:
        """Write to the job's output."""
        self._call(
            "notify",
            lambda: self._library.Job(job_id).notify(text),
            lambda: SlurmCommands.notify(self, job_id, text),
        )

    def _call(self, what: str, act: Callable[[], T], otherwise: Callable[[], T]) -> T:
        """Call the library; raise its errors as SlurmError. What its release lacks, Slurm's commands do."""
        try:
            return act()
        except self._library.PyslurmError as error:
            raise SlurmError(f"pyslurm {what}", one_line(str(error)), code=1) from None
        except _OTHER_API:
            return otherwise()


def job_of(raw: Any) -> SlurmJob:
    """A job from pyslurm's object."""
    state = str(raw.state or "")
    nodes = int(raw.num_nodes or 0)
    kind, gpus = _gpus(raw, nodes)
    return SlurmJob(
        job_id=int(raw.id),
        name=str(raw.name or ""),
        user=str(raw.user_name or ""),
        user_id=int(raw.user_id or 0),
        account=str(raw.account or ""),
        states=(state,) if state else (),
        reason=str(raw.state_reason or ""),
        partition=str(raw.partition or ""),
        nodes=nodes,
        node_list=str(raw.allocated_nodes or "") if state != PENDING else "",
        batch_host=str(raw.batch_host or ""),
        gpus=gpus,
        gpu_type=kind,
        comment=str(raw.comment or ""),
        admin_comment=str(raw.admin_comment or ""),
        submitted_s=float(raw.submit_time or 0),
        started_s=float(raw.start_time or 0),
        restarts=int(raw.requeue_count or 0),
        requeue=bool(raw.is_requeueable),
        priority=int(raw.priority or 0),
        special="array" if raw.array_id else "het" if raw.heterogeneous_id else "",
        batch=bool(raw.is_batch_job),
    )


def _gpus(raw: Any, nodes: int) -> tuple[str, int]:
    """Type and number of the job's GPUs: allocated, else requested.

    `gpus` has {"gpu": 16, "gpu:h100": 16}; it is empty if AccountingStorageTRES lacks gres/gpu. Releases
    before 25.11.2 have only `gres_per_node`, {"gres/gpu:h100": 8}, which later ones remove.
    """
    counts = {name: int(gpu.count) for name, gpu in (getattr(raw, "gpus", None) or {}).items()}
    typed = {name.partition(":")[2]: count for name, count in counts.items() if ":" in name}
    if counts:
        return next(iter(typed), ""), counts.get("gpu", 0) or sum(typed.values())
    per_node: Mapping[str, int] = getattr(raw, "gres_per_node", None) or {}
    kind, each = gres_gpus(",".join(f"{name}={count}" for name, count in per_node.items()))
    return kind, each * max(1, nodes)
