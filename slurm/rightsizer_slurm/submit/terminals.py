"""The terminal of a salloc that waits for its job: what became of the hold, and the end of a refused job.

Slurm shows the line as an informational message of salloc, so `salloc --quiet` hides it. A refusal is an
error of salloc, which no option hides.
"""

import contextlib

from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError

__all__ = ["end_refused", "tell"]


def tell(slurm: Slurm, job: SlurmJob, text: str) -> None:
    """Write a line to the terminal that waits for the job; nothing for a batch job."""
    if not job.batch:
        with contextlib.suppress(SlurmError):  # the terminal is gone
            slurm.run("scontrol", "notify", str(job.job_id), f"rightsizer: {text}")


def end_refused(slurm: Slurm, job: SlurmJob, reason: str) -> bool:
    """End a refused job for which a terminal waits; False for a batch job, which stays held."""
    if job.batch:
        return False
    tell(slurm, job, f"refused: {reason}")
    slurm.run("scancel", str(job.job_id))
    return True
