"""Held jobs: find the job of each ticket, set its size, release it. No job is sized twice.

The plugin writes the ticket into the comment of the job; from then on the ticket has the number of the job. A
job that its owner released or cancelled is not changed. A refused job ends; its Comment says why.
After a crash the update is repeated, with the same values. A job without a size after `hold_limit_s` is
released unchanged, or refused by `on_fault` and where sizes are enforced. What fails with one ticket is tried
again and delays no other.
"""

import contextlib
import datetime as dt
import itertools
import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.values import immutable
from rightsizer_slurm.cluster.backends import Backend, unavailable
from rightsizer_slurm.cluster.comment import hold_of, with_variables, written
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.jobs import SlurmJob, noted, other_gres
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict, held_request
from rightsizer_slurm.submit.terminals import end_refused, end_unable, tell
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore, steady_s

_LOG = logging.getLogger("rightsizer.slurm")
_EXPIRES_S = 3600.0
"""A ticket without a job expires after this time: the submit failed after the plugin had its response."""
_SHIPPED = SiteConfig()
_RETRY_S = 30.0
_LOOKS_S = (0.5, 60.0)
"""The job of a ticket is looked for again after as long as the ticket is old, within these bounds."""
_AT_ONCE = 100  # tickets of one call: with all of a large burst it would seem to hang


@immutable
class TicketResult:
    """The result of one ticket, for the log."""

    ticket: str
    job_id: int | None
    text: str


def ticket_name(request: SizingRequest) -> str:
    """A new ticket. Its last digit says whether the user holds the job, also when the ticket is lost."""
    return f"{secrets.token_hex(8)}{int(request.priority == 0)}"


def is_own_hold(ticket: str) -> bool:
    """Whether the user of the ticket's job holds it too."""
    return ticket.endswith("1")


def release_held_jobs(
    state: TicketStore,
    slurm: Slurm,
    backend: Backend,
    *,
    site: SiteConfig = _SHIPPED,
    now_s: float | None = None,
    since_s: float = 0.0,
) -> Iterator[TicketResult]:
    """Process the tickets that have a response or are overdue, and look for the jobs of new ones.

    No job is overdue for the time before `since_s`, when no daemon ran. SlurmError if Slurm is unavailable:
    retry.
    """
    now_s = steady_s() if now_s is None else now_s
    waiting = (_with_response(ticket, site, now_s, since_s) for ticket in state.tickets())
    due = [one for one in waiting if one.retry_s <= now_s and (one.job_id is None or one.response)]
    if not due:
        return
    found = _located(state, due, backend.jobs(), now_s)
    state.save()  # before the first command: a job that has its size no longer names its ticket
    names, oldest_s = {one.name for one in due}, now_s - _EXPIRES_S
    tickets = (
        _with_response(ticket, site, now_s, since_s) for ticket in state.tickets() if ticket.name in names
    )
    settled = (one for one in tickets if one.response and (one.name in found or one.made_s <= oldest_s))
    for ticket in itertools.islice(settled, _AT_ONCE):
        job = found.get(ticket.name)
        done, text = _one(ticket, job, slurm, site) if job else (True, "expired: no job has this ticket")
        if done or ticket.made_s <= oldest_s:
            state.remove(ticket.name)
        else:
            state.postpone(ticket.name, now_s + _RETRY_S)
        yield TicketResult(ticket=ticket.name, job_id=job.job_id if job else None, text=text)


def _located(
    state: TicketStore, due: Sequence[Ticket], jobs: Sequence[SlurmJob], now_s: float
) -> Mapping[str, SlurmJob]:
    """The jobs of tickets. A ticket without a job is left alone for as long as it is old."""
    found = _jobs_of(due, jobs)
    for ticket in due:
        if ticket.name not in found:
            state.postpone(ticket.name, now_s + min(max(now_s - ticket.made_s, _LOOKS_S[0]), _LOOKS_S[1]))
        elif ticket.job_id is None:
            state.set_job(ticket.name, found[ticket.name].job_id)
            state.set_request(ticket.name, _bounded(ticket.request, found[ticket.name]))
    return found


def adopt(state: TicketStore, jobs: Sequence[SlurmJob], *, now_s: float | None = None) -> None:
    """Add tickets for held jobs without one: the daemon did not answer, or has lost its file.

    The plugin has written their requests into their AdminComments.
    """
    now_s = steady_s() if now_s is None else now_s
    tickets = state.tickets()
    known, names = {ticket.job_id for ticket in tickets}, {ticket.name for ticket in tickets}
    for job in jobs:
        asked = held_request(job.admin_comment) if job.held and not job.held_by_admin else None
        if asked is None or job.job_id in known or hold_of(job.comment) in names:
            continue
        request = replace(asked, comment=written(job.comment), uid=job.user_id, user=job.user)
        state.add(
            Ticket(name=ticket_name(request), made_s=now_s, request=_bounded(request, job), job_id=job.job_id)
        )


def _bounded(request: SizingRequest, job: SlurmJob) -> SizingRequest:
    """The request with the job's --deadline, which Slurm does not show to job_submit."""
    if not job.deadline_s:
        return request
    moment = dt.datetime.fromtimestamp(job.deadline_s, dt.UTC).astimezone()
    return replace(request, deadline=moment.isoformat())


def _with_response(ticket: Ticket, site: SiteConfig, now_s: float, since_s: float) -> Ticket:
    """The ticket, with a response also where it has waited for too long."""
    if ticket.response or now_s - max(ticket.made_s, since_s) < site.hold_limit_s:
        return ticket
    late = SizingResponse(verdict=SizingVerdict.KEEP, say=f"no size after {site.hold_limit_s:g} s")
    return replace(ticket, response=late)


def _jobs_of(tickets: Sequence[Ticket], jobs: Sequence[SlurmJob]) -> Mapping[str, SlurmJob]:
    """The job of each ticket: by its number, else by its submitter and the ticket in its comment."""
    numbers = {job.job_id: job for job in jobs}
    holds = {(hold_of(job.comment), job.user_id): job for job in jobs}
    if any(ticket.request.uid == 0 for ticket in tickets):  # root submits for others too
        holds |= {(name, 0): job for (name, _), job in holds.items()}
    pairs = ((one, numbers.get(one.job_id or 0) or holds.get((one.name, one.request.uid))) for one in tickets)
    return {one.name: job for one, job in pairs if job}


def _one(ticket: Ticket, job: SlurmJob, slurm: Slurm, site: SiteConfig) -> tuple[bool, str]:
    """Whether the ticket is done, and the action. SlurmError only if Slurm is unavailable: retry later."""
    closed = ticket.request.mode == "enforce" or site.unsized(job.partition) != "as-written"
    refusal = _refusal(ticket, closed=closed)
    try:
        return True, _refused(job, slurm, refusal) if refusal else _settled(ticket, job, slurm)
    except SlurmError as error:
        if unavailable(error):
            raise
        cause = f"Slurm refused the size: {error}"
    except Exception as error:  # a fault of ours in one ticket must not hold its job, nor the others
        _LOG.exception("ticket %s", ticket.name)
        cause = f"internal error: {error!r}"
    try:
        if closed or refusal:
            return True, _refused(job, slurm, refusal or one_line(cause, 400))
        return True, _released_unchanged(ticket, job, slurm, cause)
    except SlurmError as error:
        if unavailable(error):
            raise
        return False, f"cannot be released, tried again later: {error}"


def _refusal(ticket: Ticket, *, closed: bool) -> str:
    """Why a job is refused, where `closed` also for the lack of a size; empty if it is not."""
    response = ticket.response
    if (
        response is None
        or response.verdict is SizingVerdict.REFUSE
        or (closed and response.verdict is SizingVerdict.KEEP)
    ):
        return one_line(response.say if response else "no answer", 400)
    return ""


def _refused(job: SlurmJob, slurm: Slurm, reason: str) -> str:
    if not job.held:
        return f"not changed: {job.state} and no longer held"
    end_refused(slurm, job, reason)
    return f"refused, ended: {reason}"


def _released_unchanged(ticket: Ticket, job: SlurmJob, slurm: Slurm, cause: str) -> str:
    if end_unable(slurm, job, one_line(cause, 400)):
        return f"ended, {cause}"
    with contextlib.suppress(SlurmError):
        restored = (f"{name}={gpus}" for name, gpus in _own_gpus(ticket.request).items())
        note = noted(job.admin_comment, f"not sized: {one_line(cause, 400)}")
        texts = (f"Comment={written(job.comment)}", f"AdminComment={note}")
        slurm.run("scontrol", "update", f"JobId={job.job_id}", *restored, *texts)
    tell(slurm, job, f"not sized: {one_line(cause)}")
    _release(ticket, job, slurm)
    return f"released unchanged, {cause}"


def _release(ticket: Ticket, job: SlurmJob, slurm: Slurm) -> None:
    """End our hold, but not one of the user or of an administrator."""
    if ticket.request.priority != 0 and not job.held_by_admin:
        slurm.run("scontrol", "release", str(job.job_id))


def _settled(ticket: Ticket, job: SlurmJob, slurm: Slurm) -> str:
    request, response, target = ticket.request, ticket.response, f"JobId={job.job_id}"
    if not job.held:
        return f"not changed: {job.state} and no longer held"
    assert response is not None
    sized = response.verdict is SizingVerdict.OK
    if not sized and end_unable(slurm, job, one_line(response.say, 400)):
        return f"ended: {response.say}"
    note = _note(response) if sized else f"not sized: {one_line(response.say, 400)}"
    texts = [
        f"Comment={with_variables(job.comment, response.variables if sized else {})}",
        f"AdminComment={noted(job.admin_comment, note)}",
    ]
    size = changes(request, response, before_s=job.deadline_s) if sized else ()
    if size and (own := _own_gpus(request)):  # Slurm refuses a typed request beside an untyped one
        slurm.run("scontrol", "update", target, *(f"{name}=" for name in own))
    slurm.run("scontrol", "update", target, *size, *texts)
    tell(slurm, job, one_line(response.say) if sized else note)
    _release(ticket, job, slurm)
    return f"{'sized' if sized else 'released'}: {response.say}"


def _note(response: SizingResponse) -> str:
    return str(response.fields.get("admin_comment", "")).strip("[]").removeprefix("rightsizer/1 ")


def _own_gpus(request: SizingRequest) -> Mapping[str, str]:
    """The GPUs that the user requested, in the forms of scontrol."""
    forms = {"TresPerNode": request.gres, "TresPerJob": request.tres_per_job}
    return {name: gpus for name, gpus in forms.items() if gpus}


def changes(request: SizingRequest, response: SizingResponse, *, before_s: float = 0.0) -> tuple[str, ...]:
    """The update of a pending job; none for one that has its size already.

    Slurm ends a pending job at once if its time limit passes its --deadline (`before_s`, 0 without one).

    Slurm cannot change tasks per node or cores per task of a pending job. If the user set neither, only the
    cores are set, and Slurm counts one task a node. Otherwise tasks and cores must match what the user set;
    if they do not, the job never starts (BadConstraints).
    """
    fields = response.fields
    if "max_nodes" not in fields:
        return ()
    nodes = int(fields["max_nodes"])
    tasks = _tasks(request, nodes)
    values = {
        "NumNodes": f"{nodes}-{nodes}",
        "NumTasks": tasks,
        "NumCPUs": fields.get("min_cpus") if tasks is None else tasks * (request.cpus_per_task or 1),
        "TimeLimit": _minutes(fields.get("time_limit"), before_s),
        "Partition": fields.get("partition"),
        "TresPerNode": _tres_per_node(str(fields["gres"]), request) if "gres" in fields else None,
    }
    return tuple(f"{key}={value}" for key, value in values.items() if value is not None)


def _tres_per_node(gpus: str, request: SizingRequest) -> str:
    """The GPUs of a size, and the user's other generic resources."""
    return ",".join(f"gres:{item}" for item in (gpus, *other_gres(request.gres)))


def _minutes(limit: int | str | None, before_s: float) -> int | str | None:
    if limit is None or not before_s:
        return limit
    return max(1, min(int(limit), int((before_s - time.time()) // 60.0) - 1))


def _tasks(request: SizingRequest, nodes: int) -> int | None:
    """The number of tasks that the user's options imply; None if they imply none."""
    if request.node_tasks:
        return nodes * request.node_tasks
    if request.num_tasks:
        return max(nodes, request.num_tasks)
    return nodes if request.cpus_per_task else None
