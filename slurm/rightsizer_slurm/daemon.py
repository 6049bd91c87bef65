"""`rightsizer slurm daemon`: privileges, the socket, the cluster read again and again, held jobs let go."""

import asyncio
import contextlib
import datetime as dt
import itertools
import logging
import os
import pwd
import signal
import stat
import sys
import threading
from pathlib import Path

from rightsizer.errors import InputError
from rightsizer_api import loads
from rightsizer_slurm.cluster import accounting_limits, snapshot
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.config import Site, read
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.cluster.untrusted_text import one_line
from rightsizer_slurm.monitor.service import Options, beside
from rightsizer_slurm.monitor.settings import options_of
from rightsizer_slurm.submit.answer import answer
from rightsizer_slurm.submit.held_jobs import carry_out
from rightsizer_slurm.submit.protocol import Question
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.ticket_store import TicketStore

__all__ = ["run"]

_LOG = logging.getLogger("rightsizer.slurm")
_ROUND_S = 0.5  # between looks at held jobs, while there are any
_LIMITS_EVERY = 12  # looks at the cluster between two at accounting's limits: a minute, by default
_BACKLOG = 1024
_WARM = "rightsizer: model=llama-3.1-8b tokens=1B deadline=72h"


def run(config: Path, *, monitor: bool = False) -> int:
    """Serve until SIGTERM or SIGINT, with the monitor beside it if asked for."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    site = read(config)
    uid = become(site.user)
    for folder in (site.socket.parent, site.state.parent):
        if not os.access(folder, os.W_OK | os.X_OK):
            remedy = f"is no folder that {site.user} can write; make it, as docs/slurm.md says"
            raise InputError("rightsizer.conf", value=str(folder), remedy=remedy)
    watch = options_of(site.monitor, state=site.state) if monitor else None
    state = TicketStore(site.state)
    try:
        asyncio.run(_serve(site, state, frozenset({0, uid}), watch))
    finally:
        state.close()
    return 0


def become(name: str) -> int:
    """Give up root for the user of that name; whoever else we are, we stay. Returns the user's number."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise InputError("user", value=name, remedy="is no user here; name slurm.conf's SlurmUser") from None
    if os.geteuid() == 0 and user.pw_uid != 0:
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        os.environ["HOME"] = user.pw_dir
    return user.pw_uid


async def _serve(site: Site, state: TicketStore, trusted: frozenset[int], watch: Options | None) -> None:
    server = Server(site=site, state=state, trusted=trusted)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    slurm = Slurm()
    await _look(server, slurm, limits_too=True)
    await asyncio.to_thread(_warm_up)
    listener = await _listen(server, site)
    tasks = [
        asyncio.create_task(_watch(server, slurm, site)),
        asyncio.create_task(_let_go(server, slurm, state)),
        asyncio.create_task(server.make_ready()),
    ]
    watching, unwatched = None, threading.Event()
    if watch is not None:
        watching = asyncio.create_task(asyncio.to_thread(beside, watch, slurm, unwatched))
    _LOG.info("listening at %s as uid %d", site.socket, os.geteuid())
    async with listener:
        await ended.wait()
    unwatched.set()
    if watching is not None:
        await watching  # a command that it has given is followed by its line in the journal
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    site.socket.unlink(missing_ok=True)
    _LOG.info("ended")


async def _listen(server: Server, site: Site) -> asyncio.Server:
    """The socket, in place of one that an earlier daemon left; its mode says who may connect."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(site.socket.lstat().st_mode):
            raise InputError("socket", value=str(site.socket), remedy="is there and no socket; remove it")
        site.socket.unlink()
    before = os.umask(0o111 if site.users else 0o117)
    try:
        return await asyncio.start_unix_server(server.serve, site.socket, limit=8192, backlog=_BACKLOG)
    finally:
        os.umask(before)


async def _watch(server: Server, slurm: Slurm, site: Site) -> None:
    """Read the cluster again and again; while slurmctld is away, what was read last stands."""
    for number in itertools.count(1):
        await asyncio.sleep(site.refresh_s)
        await _look(server, slurm, limits_too=number % _LIMITS_EVERY == 0)
        await asyncio.to_thread(server.note)


async def _look(server: Server, slurm: Slurm, *, limits_too: bool) -> None:
    try:
        here = await asyncio.to_thread(snapshot.read, slurm)
    except SlurmError as error:
        _LOG.warning("the cluster cannot be read: %s", one_line(str(error)))
        return
    found = None
    if limits_too:
        try:
            found = await asyncio.to_thread(accounting_limits.read, slurm)
        except SlurmError as error:
            _LOG.warning("the limits of accounting cannot be read: %s", one_line(str(error)))
    server.see(here, found)


async def _let_go(server: Server, slurm: Slurm, state: TicketStore) -> None:
    """Size and release held jobs; what Slurm does not answer now is tried again."""
    backend = SlurmCommands(slurm)
    while True:
        await asyncio.sleep(_ROUND_S)
        try:
            await server.catch_up()
            for each in await asyncio.to_thread(carry_out, state, slurm, backend):
                _LOG.info("job %s, ticket %s: %s", each.job_id, each.ticket, one_line(each.what))
        except SlurmError as error:
            _LOG.warning("held jobs wait: %s", one_line(str(error)))


def _warm_up() -> None:
    """Load what the first question would else wait for: the catalog and the fitted parameters."""
    node = snapshot.Node(name="warm", gpu="h100", gpus=8, cpus=8)
    here = snapshot.Cluster(partitions=(snapshot.Partition(name="warm", nodes=("warm",)),), nodes=(node,))
    answer(Question(comment=_WARM), here=here, site=Site(), now=dt.datetime.now(dt.UTC), plan_of_file=loads)
