"""Jobs that were held to be sized later: find each, change it in one update, release it. Nothing twice.

The plugin marks such a job by its AdminComment; the update that gives it its size takes the mark away. A job
that its owner released, cancelled or started meanwhile is left alone; a job that is refused stays held, and
its AdminComment says why.
"""

import time
from collections.abc import Mapping

from rightsizer.values import immutable
from rightsizer_slurm.cluster.backends import Backend, away
from rightsizer_slurm.cluster.jobs import Job
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit.protocol import Answer, Question, Verdict
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

__all__ = ["MARK", "Carried", "carry_out", "marked"]

MARK = "rightsizer/1 hold="
_FORGOTTEN_S = 3600.0
"""A ticket without a job this long after its submit: the submit failed behind the plugin."""


@immutable
class Carried:
    """What was done about one ticket, for the log."""

    ticket: str
    job_id: int | None
    what: str


def marked(name: str) -> str:
    """The AdminComment of a job that waits for this ticket's size."""
    return f"{MARK}{name}"


def carry_out(
    state: TicketStore, slurm: Slurm, backend: Backend, *, now_s: float | None = None
) -> tuple[Carried, ...]:
    """One round over all tickets that have an answer. SlurmError where Slurm cannot be asked: again later."""
    waiting = [ticket for ticket in state.tickets() if ticket.answer is not None]
    if not waiting:
        return ()
    found = backend.jobs()
    by_mark = {job.admin_comment: job for job in found if job.admin_comment.startswith(MARK)}
    by_id = {job.job_id: job for job in found}
    now_s = time.time() if now_s is None else now_s
    done = []
    for ticket in waiting:
        job = by_mark.get(marked(ticket.name)) or _begun(ticket, by_id)
        if job is None and now_s - ticket.made_s < _FORGOTTEN_S:
            continue
        what = "no job came of it" if job is None else _one(ticket, job, state, slurm)
        state.done(ticket.name)
        done.append(Carried(ticket=ticket.name, job_id=job.job_id if job else None, what=what))
    return tuple(done)


def _begun(ticket: Ticket, jobs: Mapping[int, Job]) -> Job | None:
    """The job that an earlier daemon gave its size before it ended; it may be held yet."""
    job = jobs.get(ticket.job_id or 0)
    return job if job and ticket.answer and job.admin_comment == _said(ticket.answer) else None


def _said(answer: Answer) -> str:
    """The AdminComment of a job that has its size."""
    return str(answer.fields.get("admin_comment", "rightsizer/1 as written"))


def _one(ticket: Ticket, job: Job, state: TicketStore, slurm: Slurm) -> str:
    try:
        return _settled(ticket, job, state, slurm)
    except SlurmError as error:
        if away(error):
            raise  # nobody answered, which says nothing of the job: the same again, once Slurm is back
        slurm.run("scontrol", "release", str(job.job_id))
        return f"cannot be changed, released as written: {error}"


def _settled(ticket: Ticket, job: Job, state: TicketStore, slurm: Slurm) -> str:
    answer, target = ticket.answer, f"JobId={job.job_id}"
    if job.admin_comment == marked(ticket.name):
        if not job.held:
            return f"is {job.state} and not held: left alone"
        if answer is None or answer.verdict is Verdict.REFUSE:
            said = one_line(answer.say if answer else "", 400)
            slurm.run("scontrol", "update", target, f"AdminComment=rightsizer/1 refused: {said}")
            return f"refused, stays held: {said}"
        # known by its number from here on: after a crash its release follows
        state.found(ticket.name, job.job_id)
        size = changes(ticket.question, answer) if answer.verdict is Verdict.OK else ()
        slurm.run("scontrol", "update", target, *size, f"AdminComment={_said(answer)}")
    if ticket.question.priority != 0 and job.held:
        slurm.run("scontrol", "release", str(job.job_id))
    sized = answer is not None and answer.verdict is Verdict.OK
    return f"{'sized' if sized else 'released'}: {answer.say if answer else ''}"


def changes(question: Question, answer: Answer) -> tuple[str, ...]:
    """The one update of a waiting job.

    Its tasks and cores a task cannot be changed any more. So where its user named neither, the cores alone
    are given, and Slurm counts one task a node; where they did, tasks and cores must agree with what they
    named, or the job would wait for ever (BadConstraints).
    """
    fields, nodes = answer.fields, int(answer.fields.get("max_nodes", 1))
    tasks = _tasks(question, nodes)
    words = {
        "NumNodes": f"{nodes}-{nodes}" if "max_nodes" in fields else None,
        "NumTasks": tasks,
        "NumCPUs": fields.get("min_cpus") if tasks is None else tasks * (question.cpus_per_task or 1),
        "TimeLimit": fields.get("time_limit"),
        "Partition": fields.get("partition"),
        "TresPerNode": f"gres:{fields['gres']}" if "gres" in fields else None,
    }
    return tuple(f"{key}={value}" for key, value in words.items() if value is not None)


def _tasks(question: Question, nodes: int) -> int | None:
    """Tasks that follow from the user's own words; None where there are none."""
    if question.ntasks_per_node:
        return nodes * question.ntasks_per_node
    if question.num_tasks:
        return max(nodes, question.num_tasks)
    return nodes if question.cpus_per_task else None
