"""The daemon's socket: the plugins' questions, answered from a memo, within a patience, or with "hold".

It never asks Slurm while a plugin waits: slurmctld holds its locks then, and would answer neither.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import pwd
import secrets
import socket
import sqlite3
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from rightsizer.errors import InputError, RightsizerError
from rightsizer_slurm.cluster.accounting_limits import Limits
from rightsizer_slurm.cluster.comment import parse, subject
from rightsizer_slurm.cluster.config import Site
from rightsizer_slurm.cluster.snapshot import Cluster
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.submit import plan_files
from rightsizer_slurm.submit.answer import answer
from rightsizer_slurm.submit.held_jobs import marked
from rightsizer_slurm.submit.protocol import END, Answer, Question, Verdict, answer_text, question_of
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore

__all__ = ["Server"]

_LOG = logging.getLogger("rightsizer.slurm")
_QUESTION_S = 1.0  # for a question to arrive; the plugin sends it at once
_MEMO = 4096  # answers
_MEMO_S = 60.0  # a deadline by the clock comes nearer
_MOST_AT_ONCE = 256  # connections; slurmctld asks one by one, cli_filter may come from every login shell
_SIZING_AT_ONCE = 2
_MADE_READY = 8  # subjects after a start; the engine keeps tables of sixteen models on a GPU type
_IDLE_S = 0.1
_CLI_PATIENCE_S = 4.0  # where only one user's sbatch waits
_USER_KINDS = ("cli",)

_BROKEN = (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)
_OUR_FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
    MemoryError,
)

Key = tuple[Question, int]
Sizer = Callable[[Question], Answer]


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The cluster as it was read last; `number` goes up when it changed."""

    here: Cluster | None = None
    limits: Limits = field(default_factory=Limits)
    number: int = 0


class Server:
    """Answers questions. `trusted`: users whose word about who submits is taken, slurmctld's and root."""

    def __init__(
        self, *, site: Site, state: TicketStore, trusted: frozenset[int], sizer: Sizer | None = None
    ) -> None:
        self._site = site
        self._state = state
        self._trusted = trusted
        self._sizer = sizer or self._size
        self._seen = _Seen()
        self._memo: OrderedDict[Key, tuple[float, Answer]] = OrderedDict()
        self._running: dict[Key, asyncio.Task[Answer]] = {}
        self._slots = asyncio.Semaphore(_SIZING_AT_ONCE)
        self._sized: set[str] = set()
        self._open = 0

    def see(self, here: Cluster, limits: Limits | None = None) -> None:
        """Take note of what the cluster has and accounting allows; None: the limits are as before."""
        limits = self._seen.limits if limits is None else limits
        if self._seen.here is None or here.words() != self._seen.here.words():
            _LOG.info("seen: %s", one_line(here.words(), 1000))
        if (here, limits) != (self._seen.here, self._seen.limits):
            self._seen = _Seen(here=here, limits=limits, number=self._seen.number + 1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one question, one answer."""
        self._open += 1
        try:
            if self._open > _MOST_AT_ONCE:
                return
            await self._converse(reader, writer)
        except (
            ConnectionError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            _LOG.info("a connection broke off: %s", one_line(type(error).__name__))
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began_s = time.monotonic()
        data = await asyncio.wait_for(reader.readuntil(END), _QUESTION_S)
        try:
            question = self._attributed(question_of(data), _peer(writer))
        except InputError as error:
            _LOG.warning("a question is not understood: %s", one_line(str(error)))
            writer.write(answer_text(Answer(verdict=Verdict.KEEP, say=str(error))))
            await writer.drain()
            return
        given = await self.answered(question)
        writer.write(answer_text(given))
        await writer.drain()
        spent_ms = 1e3 * (time.monotonic() - began_s)
        _LOG.info("uid=%d %s in %.1f ms: %s", question.uid, given.verdict, spent_ms, one_line(given.say))

    def _attributed(self, question: Question, peer: int) -> Question:
        """The question in the name of who asks, unless slurmctld asks for another."""
        if peer in self._trusted and question.kind not in _USER_KINDS:
            return question
        if not self._site.users and peer not in self._trusted:
            raise InputError("uid", value=peer, remedy="may not ask; set users = yes for cli_filter")
        return replace(question, uid=peer, user=_name(peer))

    async def answered(self, question: Question) -> Answer:
        """From the memo, in time, or held."""
        if self._seen.here is None:
            return self._later(question, None)
        key = (self._asked(question), self._seen.number)
        known = self._memo.get(key)
        if known is not None and time.monotonic() - known[0] < _MEMO_S:
            return known[1]
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._worked_out(key, question))
            self._running[key] = task
        patience_s = _CLI_PATIENCE_S if question.kind in _USER_KINDS else self._site.hold_after_s
        try:
            return await asyncio.wait_for(asyncio.shield(task), patience_s)
        except TimeoutError:
            return self._later(question, task)

    def _asked(self, question: Question) -> Question:
        """What the answer depends on; a plan's file may change, and is read with its owner's rights."""
        same = question.same
        if self._seen.limits:
            same = replace(same, user=question.user)
        return replace(same, uid=question.uid) if "plan=" in question.comment else same

    async def _worked_out(self, key: Key, question: Question) -> Answer:
        try:
            async with self._slots:
                given = await asyncio.to_thread(self._sizer, question)
        finally:
            del self._running[key]
        if "plan=" not in question.comment:
            self._memo[key] = (time.monotonic(), given)
            while len(self._memo) > _MEMO:
                self._memo.popitem(last=False)
            if given.verdict is Verdict.OK and len(self._sized) < _MEMO:
                self._sized.add(question.comment)
        return given

    def _size(self, question: Question) -> Answer:
        """In a thread: the engine's answer."""
        here = self._seen.here or Cluster()
        read = partial(plan_files.read, uid=question.uid)
        now = dt.datetime.now(dt.UTC)
        try:
            return answer(
                question, here=here, site=self._site, now=now, plan_of_file=read, limits=self._seen.limits
            )
        except _OUR_FAULTS as error:
            _LOG.error("a fault of ours: %r for %s", error, one_line(question.comment))
            return Answer(verdict=Verdict.KEEP, say="a fault in the sizing; the job goes on as written")

    def _later(self, question: Question, task: "asyncio.Task[Answer] | None") -> Answer:
        """Held under a ticket, if the job can be changed later; else left as it is."""
        slow = "sizing takes longer than a submit may"
        if question.kind in _USER_KINDS or question.mode == "warn" or question.tres_per_job:
            return Answer(verdict=Verdict.KEEP, say=f"{slow}; the job goes on as written")
        try:
            parse(question.comment)
        except RightsizerError as error:
            return Answer(verdict=Verdict.REFUSE, say=one_line(str(error)))
        ticket = Ticket(name=secrets.token_hex(8), made_s=time.time(), question=question)
        self._state.add(ticket)
        if task is not None:
            task.add_done_callback(partial(self._remember, ticket.name))
        say = f"{slow}; the job is held, and released with its size (JobHeldUser until then)"
        fields: dict[str, int | str] = {"priority": 0, "admin_comment": marked(ticket.name)}
        return Answer(verdict=Verdict.HOLD, say=say, fields=fields)

    def _remember(self, name: str, task: "asyncio.Task[Answer]") -> None:
        if not task.cancelled() and task.exception() is None:
            self._state.answered(name, task.result())

    async def catch_up(self) -> None:
        """Work out the tickets that have no answer yet: after a restart, or before the cluster was read."""
        if self._seen.here is None:
            return
        for ticket in self._state.tickets():
            if ticket.answer is None and not self._running:
                given = await asyncio.to_thread(self._sizer, ticket.question)
                self._state.answered(ticket.name, given)

    def note(self) -> None:
        """Write down what was asked since the last time, for `make_ready`."""
        sized, self._sized = self._sized, set()
        try:
            for comment in sized:
                self._state.asked(subject(parse(comment)), comment=comment, asked_s=time.time())
        except sqlite3.Error as error:
            _LOG.warning("what was asked is not written down: %s", one_line(str(error)))

    async def make_ready(self) -> None:
        """After a start: let the engine work out again what it keeps of models asked about before."""
        for comment in self._state.comments(_MADE_READY):
            while self._running:
                await asyncio.sleep(_IDLE_S)
            await asyncio.to_thread(self._sizer, Question(comment=comment))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _peer(writer: asyncio.StreamWriter) -> int:
    """The user at the other end, as the kernel knows it."""
    connection: socket.socket = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return int(uid)
