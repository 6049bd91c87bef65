"""Jobs that were held to be sized later: find each, change it in one update, release it. Nothing twice.

The plugin marks such a job by its AdminComment. A job that its owner released, cancelled or started meanwhile
is left alone; a job that is refused stays held, and its AdminComment says why.
"""

import time
from dataclasses import dataclass

from rightsizer_slurm.backends import Backend, away
from rightsizer_slurm.commands import Slurm, SlurmError
from rightsizer_slurm.jobs import Job
from rightsizer_slurm.protocol import Answer, Question, Verdict
from rightsizer_slurm.state import State, Ticket
from rightsizer_slurm.text import one_line

__all__ = ["MARK", "Carried", "carry_out", "marked"]

MARK = "rightsizer/1 hold="
_FORGOTTEN_S = 3600.0
"""A ticket without a job this long after its submit: the submit failed behind the plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What was done about one ticket, for the log."""

    ticket: str
    job_id: int | None
    what: str


def marked(name: str) -> str:
    """The AdminComment of a job that waits for this ticket's size."""
    return f"{MARK}{name}"


def carry_out(
    state: State, slurm: Slurm, backend: Backend, *, now_s: float | None = None
) -> tuple[Carried, ...]:
    """One round over all tickets that have an answer. SlurmError where Slurm cannot be asked: again later."""
    waiting = [ticket for ticket in state.tickets() if ticket.answer is not None]
    if not waiting:
        return ()
    jobs = {job.admin_comment: job for job in backend.jobs() if job.admin_comment.startswith(MARK)}
    now_s = time.time() if now_s is None else now_s
    return tuple(filter(None, (_one(ticket, jobs, state, slurm, now_s) for ticket in waiting)))


def _one(ticket: Ticket, jobs: dict[str, Job], state: State, slurm: Slurm, now_s: float) -> Carried | None:
    job = jobs.get(marked(ticket.name))
    if job is None:
        if now_s - ticket.made_s < _FORGOTTEN_S:
            return None
        state.done(ticket.name)
        return Carried(ticket=ticket.name, job_id=None, what="no job came of it")
    try:
        what = _settled(job, ticket, state, slurm)
    except SlurmError as error:
        if away(error):
            raise  # nobody answered, which says nothing of the job: the same again, once Slurm is back
        what = f"cannot be changed, released as written: {error}"
        slurm.run("scontrol", "release", str(job.job_id))
    state.done(ticket.name)
    return Carried(ticket=ticket.name, job_id=job.job_id, what=what)


def _settled(job: Job, ticket: Ticket, state: State, slurm: Slurm) -> str:
    answer, target = ticket.answer, f"JobId={job.job_id}"
    if not job.held and not (ticket.job_id and job.live):
        return f"is {job.state} and not held: left alone"
    if answer is None or answer.verdict is Verdict.REFUSE:
        said = one_line(answer.say if answer else "", 400)
        slurm.run("scontrol", "update", target, f"AdminComment=rightsizer/1 refused: {said}")
        return f"refused, stays held: {said}"
    if job.held:  # else an earlier daemon ended between its release and the mark
        if answer.verdict is Verdict.OK:
            slurm.run("scontrol", "update", target, *changes(ticket.question, answer))
        state.found(ticket.name, job.job_id)
        if ticket.question.priority != 0:
            slurm.run("scontrol", "release", str(job.job_id))
    # the mark goes last: after a crash on the way here the same is done again
    said = str(answer.fields.get("admin_comment", "rightsizer/1 as written"))
    slurm.run("scontrol", "update", target, f"AdminComment={said}")
    return f"{'sized' if answer.verdict is Verdict.OK else 'released'}: {answer.say}"


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
