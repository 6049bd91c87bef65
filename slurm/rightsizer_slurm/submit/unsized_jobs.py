"""Ends holds without a size: those that last too long, and all of them when the daemon ends.

It needs no request and no response, only the ticket in the job's comment: a lost state file holds no job for
ever. Users can write that word too, so an administrator's hold stays.
"""

import logging
import time
from collections.abc import Collection

from rightsizer_slurm.cluster.backends import Backend, unavailable
from rightsizer_slurm.cluster.comment import hold_of, written
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import SlurmJob, noted
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit.held_jobs import is_own_hold
from rightsizer_slurm.submit.terminals import end_refused, tell

__all__ = ["release_unsized"]

_LOG = logging.getLogger("rightsizer.slurm")


def release_unsized(
    slurm: Slurm,
    backend: Backend,
    site: SiteConfig,
    *,
    reason: str,
    held_s: float = 0.0,
    except_for: Collection[int] = (),
    now_s: float | None = None,
) -> tuple[int, ...]:
    """End the holds that have lasted `held_s`, but not those of the jobs in `except_for`.

    The jobs are released, or refused and left held, by `on_fault`; with `hold` they wait `hold_limit_s`.
    `reason` goes into their AdminComment. SlurmError if Slurm is unavailable.
    """
    now_s = time.time() if now_s is None else now_s
    released = []
    for job in backend.jobs():
        ticket = hold_of(job.comment) if job.held and not job.held_by_admin else ""
        policy = site.unsized(job.partition)
        age_s = now_s - job.submitted_s
        waits = age_s < (site.hold_limit_s if policy == "hold" else held_s)
        if ticket and job.job_id not in except_for and not waits:
            try:
                _end(slurm, job, reason, refused=policy != "as-written", own=is_own_hold(ticket))
            except SlurmError as error:
                if unavailable(error):
                    raise
                _LOG.error("job %d cannot be released: %s", job.job_id, one_line(str(error)))
            else:
                released.append(job.job_id)
    return tuple(released)


def _end(slurm: Slurm, job: SlurmJob, reason: str, *, refused: bool, own: bool) -> None:
    note = noted(job.admin_comment, f"not sized: {reason}")
    slurm.run(
        "scontrol", "update", f"JobId={job.job_id}", f"Comment={written(job.comment)}", f"AdminComment={note}"
    )
    if refused:
        end_refused(slurm, job, f"not sized: {reason}")
        return
    tell(slurm, job, f"not sized: {reason}")
    if not own:
        slurm.run("scontrol", "release", str(job.job_id))
