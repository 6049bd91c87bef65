"""The daemon's socket: responds to the plugins' requests from a cache, or with "hold".

While a plugin waits slurmctld holds its locks. So nothing is sized, written to disk or asked of Slurm then,
and a plan file is waited for only 0.1 s.
"""

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import sqlite3
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError
from rightsizer_launch.bounded.process import ChildError
from rightsizer_launch.bounded.sizing_pool import FairPool
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits
from rightsizer_slurm.cluster.comment import LONGEST, parse, subject
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.cluster.user_names import user_name
from rightsizer_slurm.submit.held_jobs import ticket_name
from rightsizer_slurm.submit.protocol import (
    END,
    SizingRequest,
    SizingResponse,
    SizingVerdict,
    parse_request,
    response_text,
    version_of,
)
from rightsizer_slurm.submit.sizing_processes import SizingTask
from rightsizer_slurm.submit.ticket_store import Ticket, TicketStore, steady_s
from rightsizer_slurm.submit.validation import Validator

_LOG = logging.getLogger("rightsizer.slurm")
_REQUEST_TIMEOUT_S = 1.0  # to receive a request; the plugin sends it at once
_CACHE_SIZE = 4096  # responses
_CACHE_TTL_S = 60.0  # a deadline at a fixed time comes nearer
_MAX_CONNECTIONS = 16  # of one user: cli_filter opens one for each sbatch. slurmctld and root have no limit
_MAX_WAITING = 1000  # requests of one user that wait to be sized
_WARM_SUBJECTS = 8  # sized again after a start; the engine caches sixteen models for a GPU type
_IDLE_S = 0.1
_ADDED = 400  # characters that a held job's comment gets: its ticket, then its variables
_CLI_TIMEOUT_S = 4.0  # only the user's own sbatch waits
_USER_KINDS = ("cli",)
_WARM_UP = "warm-up"  # takes turns with the users

Key = tuple[SizingRequest, int]


@dataclass(slots=True, kw_only=True)
class _Snapshot:
    """The cluster and limits at the last read; `number` increases with each change."""

    cluster: SlurmCluster | None = None
    limits: AccountingLimits = field(default_factory=AccountingLimits)
    number: int = 0


class Server:
    """Responds to requests. `trusted` are the users that may name another submitter: slurmctld's and root.

    `pool` sizes a SizingTask; users take turns.
    """

    def __init__(
        self,
        *,
        site: SiteConfig,
        state: TicketStore,
        trusted: frozenset[int],
        pool: FairPool,
        validator: Validator | None = None,
    ) -> None:
        self._site = site
        self._state = state
        self._trusted = trusted
        self._pool = pool
        self._validator = validator or Validator()
        self._snapshot = _Snapshot()
        self._cache: OrderedDict[Key, tuple[float, SizingResponse]] = OrderedDict()
        self._running: dict[Key, asyncio.Task[SizingResponse]] = {}
        self._attached: set[str] = set()
        self._sized: set[str] = set()
        self._connections: Counter[int] = Counter()
        self.verdicts: Counter[str] = Counter(dict.fromkeys(map(str, SizingVerdict), 0))

    def update(self, cluster: SlurmCluster, limits: AccountingLimits | None = None) -> None:
        """Set the cluster and the limits of accounting; None keeps the limits."""
        limits = self._snapshot.limits if limits is None else limits
        if self._snapshot.cluster is None or cluster.summary() != self._snapshot.cluster.summary():
            _LOG.info("cluster: %s", one_line(cluster.summary(), 1000))
        if (cluster, limits) != (self._snapshot.cluster, self._snapshot.limits):
            self._snapshot = _Snapshot(cluster=cluster, limits=limits, number=self._snapshot.number + 1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: one request, one response."""
        peer = _peer(writer)
        self._connections[peer] += 1
        try:
            if peer in self._trusted or self._connections[peer] <= _MAX_CONNECTIONS:
                await self._converse(reader, writer, peer)
        except (
            ConnectionError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            _LOG.info("a connection failed: %s", one_line(type(error).__name__))
        finally:
            self._connections -= Counter({peer: 1})
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        # only now: slurmctld has its response and waits no longer
        await asyncio.to_thread(self._state.save)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: int) -> None:
        began_s = time.monotonic()
        data = await asyncio.wait_for(reader.readuntil(END), _REQUEST_TIMEOUT_S)
        version = version_of(data)
        try:
            request = self._attributed(parse_request(data), peer)
        except InputError as error:
            _LOG.warning("invalid request: %s", one_line(str(error)))
            kept = SizingResponse(verdict=SizingVerdict.KEEP, say=str(error))
            writer.write(response_text(kept, version=version))
            await writer.drain()
            return
        result = await self._respond_always(request)
        self.verdicts[str(result.verdict)] += 1
        writer.write(response_text(result, version=version))
        await writer.drain()
        spent_ms = 1e3 * (time.monotonic() - began_s)
        _LOG.info("uid=%d %s in %.1f ms: %s", request.uid, result.verdict, spent_ms, one_line(result.say))

    def _attributed(self, request: SizingRequest, peer: int) -> SizingRequest:
        """The request with the peer as submitter, unless a trusted peer names another."""
        if peer in self._trusted and request.kind not in _USER_KINDS:
            return request
        if not self._site.users and peer not in self._trusted:
            raise InputError(
                "uid", value=peer, remedy="may not send requests; set users = yes for cli_filter"
            )
        return replace(request, uid=peer, user=user_name(peer))

    async def _respond_always(self, request: SizingRequest) -> SizingResponse:
        """The response. After a fault of ours too: a closed connection gives no reason."""
        try:
            return await self.respond(request)
        except Exception:
            return _internal_error(request)

    async def respond(self, request: SizingRequest) -> SizingResponse:
        """The response: from the cache, else from the engine if the site waits for it, or a hold.

        What is wrong with a request by itself is refused at once.
        """
        key = (self._cache_key(request), self._snapshot.number)
        cached = self._cache.get(key)
        if cached is not None and time.monotonic() - cached[0] < _CACHE_TTL_S:
            return cached[1]
        wrong = await self._validator.error(request)
        if wrong:
            return SizingResponse(verdict=SizingVerdict.REFUSE, say=wrong, code="comment")
        if self._snapshot.cluster is None:
            return self._later(request)
        if self._pool.waiting(request.uid) >= _MAX_WAITING and key not in self._running:
            say = f"{_MAX_WAITING:,} of your requests wait to be sized"
            return SizingResponse(verdict=SizingVerdict.KEEP, say=say, code="fault")
        task = self._task(key, request)
        timeout_s = _CLI_TIMEOUT_S if request.kind in _USER_KINDS else self._site.hold_after_s
        try:
            return await asyncio.wait_for(asyncio.shield(task), timeout_s)
        except TimeoutError:
            return self._later(request)

    def _task(self, key: Key, request: SizingRequest) -> "asyncio.Task[SizingResponse]":
        """The sizing of a request; equal requests share one."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._sized_once(key, request))
            self._running[key] = task
        return task

    def _cache_key(self, request: SizingRequest) -> SizingRequest:
        """The fields that the response depends on; with a plan file also the uid that reads it."""
        same = request.same
        if self._snapshot.limits:
            same = replace(same, user=request.user)
        return replace(same, uid=request.uid) if "plan=" in request.comment else same

    async def _sized_once(self, key: Key, request: SizingRequest) -> SizingResponse:
        try:
            result = await self._size(request, request.uid)
        except Exception:  # a fault of ours in one request must not stop the others
            result = _internal_error(request)
        finally:
            del self._running[key]
        if "plan=" not in request.comment:
            self._cache[key] = (time.monotonic(), result)
            while len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
            if result.verdict is SizingVerdict.OK and len(self._sized) < _CACHE_SIZE:
                self._sized.add(request.comment)
        return result

    async def _size(self, request: SizingRequest, tenant: Hashable) -> SizingResponse:
        """The engine's response. A request that ends its child process is not sized."""
        async with self._pool.turn(tenant) as size:
            try:
                response: SizingResponse = await size(self._sizing_task(request))
            except ChildError as error:
                _LOG.error("uid=%d not sized: %s: %s", request.uid, error, one_line(request.comment))
                return SizingResponse(verdict=SizingVerdict.KEEP, say=str(error), code="fault")
        return response

    def _sizing_task(self, request: SizingRequest) -> SizingTask:
        return SizingTask(
            request=request,
            cluster=self._snapshot.cluster or SlurmCluster(),
            site=self._site,
            limits=self._snapshot.limits,
            now=dt.datetime.now(dt.UTC),
        )

    def _later(self, request: SizingRequest) -> SizingResponse:
        """Hold the job under a ticket if it can be changed later; else leave it unchanged."""
        full = len(request.comment) > LONGEST - _ADDED
        if request.kind in _USER_KINDS or request.mode == "warn" or full:
            return SizingResponse(verdict=SizingVerdict.KEEP, say="its size is not yet known", code="fault")
        ticket = Ticket(name=ticket_name(request), made_s=steady_s(), request=request)
        self._state.add(ticket)
        self._attach(ticket)
        say = "the job is held (JobHeldUser) and released when it is sized"
        fields: dict[str, int | str] = {"priority": 0, "ticket": ticket.name}
        return SizingResponse(verdict=SizingVerdict.HOLD, say=say, fields=fields)

    def size_tickets(self) -> None:
        """Size the open tickets, also those from before a restart or before the first read of the cluster."""
        for ticket in self._state.tickets():
            if ticket.response is None and ticket.name not in self._attached:
                self._attach(ticket)

    def _attach(self, ticket: Ticket) -> None:
        if self._snapshot.cluster is not None:
            self._attached.add(ticket.name)
            key = (self._cache_key(ticket.request), self._snapshot.number)
            self._task(key, ticket.request).add_done_callback(partial(self._responded, ticket))

    def _responded(self, ticket: Ticket, task: "asyncio.Task[SizingResponse]") -> None:
        self._attached.discard(ticket.name)
        if not task.cancelled() and task.exception() is None:
            self._state.set_response(ticket.name, task.result(), request=ticket.request)

    def save_subjects(self) -> None:
        """Store the subjects sized since the last call, for `warm_up`."""
        sized, self._sized = self._sized, set()
        try:
            for comment in sized:
                self._state.record_subject(subject(parse(comment)), comment=comment, requested_s=time.time())
        except sqlite3.Error as error:
            _LOG.warning("the subjects cannot be stored: %s", one_line(str(error)))

    async def warm_up(self) -> None:
        """After a start, size the stored subjects again to fill the engine's caches."""
        await asyncio.to_thread(self._validator.warm_up)
        for comment in self._state.comments(_WARM_SUBJECTS):
            while self._running:
                await asyncio.sleep(_IDLE_S)
            await self._size(SizingRequest(comment=comment), _WARM_UP)


def _internal_error(request: SizingRequest) -> SizingResponse:
    """The response after the fault that is being handled, which is logged."""
    _LOG.exception("internal error: %s", one_line(request.comment))
    return SizingResponse(verdict=SizingVerdict.KEEP, say="internal error", code="fault")


def _peer(writer: asyncio.StreamWriter) -> int:
    """The uid of the peer, from the kernel."""
    connection: socket.socket = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", raw)
    return int(uid)
