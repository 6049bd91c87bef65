"""Held jobs: find the job of each ticket, set its size in one update, release it. No step is done twice.

The plugin marks a held job in its AdminComment; the update that sets the size removes the mark. A job
that its owner released or cancelled is not changed. A refused job stays held; its AdminComment says why.
"""

import time
from collections.abc import Mapping

from rightsizer.values import immutable
from rightsizer_slurm.cluster.backends import Backend, unavailable
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, Verdict
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

__all__ = ["MARK", "TicketResult", "marked", "release_held_jobs"]

MARK = "rightsizer/1 hold="
_EXPIRES_S = 3600.0
"""A ticket without a job expires after this time: the submit failed after the plugin had answered."""


@immutable
class TicketResult:
    """The result of one ticket, for the log."""

    ticket: str
    job_id: int | None
    text: str


def marked(name: str) -> str:
    """The AdminComment of a job that is held for this ticket."""
    return f"{MARK}{name}"


def release_held_jobs(
    state: TicketStore, slurm: Slurm, backend: Backend, *, now_s: float | None = None
) -> tuple[TicketResult, ...]:
    """Process all tickets that have an answer. SlurmError if Slurm is unavailable; call again later."""
    waiting = [ticket for ticket in state.tickets() if ticket.response is not None]
    if not waiting:
        return ()
    jobs = backend.jobs()
    by_mark = {job.admin_comment: job for job in jobs if job.admin_comment.startswith(MARK)}
    by_id = {job.job_id: job for job in jobs}
    now_s = time.time() if now_s is None else now_s
    done = []
    for ticket in waiting:
        job = by_mark.get(marked(ticket.name)) or _begun(ticket, by_id)
        if job is None and now_s - ticket.made_s < _EXPIRES_S:
            continue
        text = "expired: no job has this ticket" if job is None else _one(ticket, job, state, slurm)
        state.remove(ticket.name)
        done.append(TicketResult(ticket=ticket.name, job_id=job.job_id if job else None, text=text))
    return tuple(done)


def _begun(ticket: Ticket, jobs: Mapping[int, SlurmJob]) -> SlurmJob | None:
    """The job that an earlier daemon process had sized before it ended; it may still be held."""
    job = jobs.get(ticket.job_id or 0)
    return job if job and ticket.response and job.admin_comment == _comment_of(ticket.response) else None


def _comment_of(response: SizingResponse) -> str:
    """The AdminComment of a sized job."""
    return str(response.fields.get("admin_comment", "rightsizer/1 as written"))


def _one(ticket: Ticket, job: SlurmJob, state: TicketStore, slurm: Slurm) -> str:
    try:
        return _settled(ticket, job, state, slurm)
    except SlurmError as error:
        if unavailable(error):
            raise  # no answer from Slurm: retry later
        slurm.run("scontrol", "release", str(job.job_id))
        return f"released unchanged, Slurm refused the size: {error}"


def _settled(ticket: Ticket, job: SlurmJob, state: TicketStore, slurm: Slurm) -> str:
    response, target = ticket.response, f"JobId={job.job_id}"
    if job.admin_comment == marked(ticket.name):
        if not job.held:
            return f"not changed: {job.state} and no longer held"
        if response is None or response.verdict is Verdict.REFUSE:
            reason = one_line(response.say if response else "", 400)
            slurm.run("scontrol", "update", target, f"AdminComment=rightsizer/1 refused: {reason}")
            return f"refused, stays held: {reason}"
        # the ticket now has the job's number: after a crash the release follows
        state.set_job(ticket.name, job.job_id)
        size = changes(ticket.request, response) if response.verdict is Verdict.OK else ()
        slurm.run("scontrol", "update", target, *size, f"AdminComment={_comment_of(response)}")
    if ticket.request.priority != 0 and job.held:
        slurm.run("scontrol", "release", str(job.job_id))
    sized = response is not None and response.verdict is Verdict.OK
    return f"{'sized' if sized else 'released'}: {response.say if response else ''}"


def changes(request: SizingRequest, response: SizingResponse) -> tuple[str, ...]:
    """The update of a pending job.

    Slurm cannot change tasks per node or cores per task of a pending job. If the user set neither, only the
    cores are set, and Slurm counts one task a node. Otherwise tasks and cores must match what the user set;
    if they do not, the job never starts (BadConstraints).
    """
    fields, nodes = response.fields, int(response.fields.get("max_nodes", 1))
    tasks = _tasks(request, nodes)
    values = {
        "NumNodes": f"{nodes}-{nodes}" if "max_nodes" in fields else None,
        "NumTasks": tasks,
        "NumCPUs": fields.get("min_cpus") if tasks is None else tasks * (request.cpus_per_task or 1),
        "TimeLimit": fields.get("time_limit"),
        "Partition": fields.get("partition"),
        "TresPerNode": f"gres:{fields['gres']}" if "gres" in fields else None,
    }
    return tuple(f"{key}={value}" for key, value in values.items() if value is not None)


def _tasks(request: SizingRequest, nodes: int) -> int | None:
    """The number of tasks that the user's options imply; None if they imply none."""
    if request.ntasks_per_node:
        return nodes * request.ntasks_per_node
    if request.num_tasks:
        return max(nodes, request.num_tasks)
    return nodes if request.cpus_per_task else None
