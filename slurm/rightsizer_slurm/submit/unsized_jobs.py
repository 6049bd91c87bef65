"""Ends holds without a size: those that last too long, and all of them when the daemon ends.

It needs no request and no response, only the ticket in the job's comment: a lost state file holds no job for
ever. Users can write that word too, so an administrator's hold stays. Jobs that may not run unsized wait for
a daemon.
"""

import logging
import time
from collections.abc import Collection, Sequence

from rightsizer_api.untrusted_text import one_line
from rightsizer_slurm.cluster.backends import unavailable
from rightsizer_slurm.cluster.comment import hold_of, written
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import SlurmJob, noted
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.held_jobs import is_own_hold
from rightsizer_slurm.submit.terminals import end_unable, tell

_LOG = logging.getLogger("rightsizer.slurm")


def release_unsized(
    slurm: Slurm,
    jobs: Sequence[SlurmJob],
    site: SiteConfig,
    *,
    reason: str,
    held_s: float = 0.0,
    except_for: Collection[int] = (),
    now_s: float | None = None,
) -> tuple[int, ...]:
    """Release the jobs that were held for `held_s`, but not those in `except_for`; `reason` is their note.

    By `on_fault`, and where sizes are enforced, they stay held. SlurmError if Slurm is unavailable.
    """
    now_s = time.time() if now_s is None else now_s
    released = []
    for job in jobs:
        ticket = hold_of(job.comment) if job.held and not job.held_by_admin else ""
        if not ticket or job.job_id in except_for or now_s - job.submitted_s < held_s:
            continue
        if site.unsized(job.partition) != "as-written":
            continue
        try:
            _release(slurm, job, reason, own=is_own_hold(ticket))
        except SlurmError as error:
            if unavailable(error):
                raise
            _LOG.error("job %d cannot be released: %s", job.job_id, one_line(str(error)))
        else:
            released.append(job.job_id)
    return tuple(released)


def _release(slurm: Slurm, job: SlurmJob, reason: str, *, own: bool) -> None:
    if end_unable(slurm, job, reason):
        return
    note = noted(job.admin_comment, f"not sized: {reason}")
    slurm.run(
        "scontrol", "update", f"JobId={job.job_id}", f"Comment={written(job.comment)}", f"AdminComment={note}"
    )
    tell(slurm, job, f"not sized: {reason}")
    if not own:
        slurm.run("scontrol", "release", str(job.job_id))
