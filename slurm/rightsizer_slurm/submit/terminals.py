"""The end of a refused job, and the terminal of a salloc that waits for its job: what became of the hold.

Slurm shows the line as an informational message of salloc, so `salloc --quiet` hides it. A refusal is an
error of salloc, which no option hides.
"""

import contextlib

from rightsizer_slurm.cluster.comment import refused
from rightsizer_slurm.cluster.jobs import SlurmJob, noted
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.protocol import held_request


def tell(slurm: Slurm, job: SlurmJob, text: str) -> None:
    """Write a line to the terminal that waits for the job; nothing for a batch job."""
    if not job.batch:
        with contextlib.suppress(SlurmError):  # the terminal is gone
            slurm.run("scontrol", "notify", str(job.job_id), f"rightsizer: {text}")


def end_refused(slurm: Slurm, job: SlurmJob, reason: str) -> None:
    """End a refused job. Its Comment and AdminComment say why; its owner cannot requeue it."""
    texts = (
        f"Comment={refused(job.comment, reason)}",
        f"AdminComment={noted(job.admin_comment, f'refused: {reason}')}",
        *(("Requeue=0",) if job.batch else ()),
    )
    slurm.run("scontrol", "update", f"JobId={job.job_id}", *texts)
    tell(slurm, job, f"refused: {reason}")
    slurm.run("scancel", str(job.job_id))


def end_unable(slurm: Slurm, job: SlurmJob, reason: str) -> bool:
    """End a job that has no size and no GPUs, and whose script cannot say so; False for another."""
    request = held_request(job.admin_comment)
    if job.gpus or request is None or not request.silent:
        return False
    end_refused(slurm, job, f"not sized, and it requests no GPUs: {reason}")
    return True
