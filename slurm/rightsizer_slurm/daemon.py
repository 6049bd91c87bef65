"""`rightsizer slurm daemon`: drops privileges, serves the socket, polls the cluster, releases held jobs.

At its end it releases what is still held. systemd's watchdog hears of every round of releases.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import pwd
import signal
import stat
import sys
import threading
from pathlib import Path

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError
from rightsizer_slurm import systemd
from rightsizer_slurm.cluster import accounting_limits, snapshot
from rightsizer_slurm.cluster.backend_commands import SlurmCommands
from rightsizer_slurm.cluster.config import SiteConfig, read
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError
from rightsizer_slurm.monitor.service import DaemonMetrics, run_in_daemon
from rightsizer_slurm.monitor.settings import MonitorOptions, options_of
from rightsizer_slurm.submit.protocol import MAX_REQUEST_BYTES
from rightsizer_slurm.submit.releases import Releases, release_all
from rightsizer_slurm.submit.server import Server
from rightsizer_slurm.submit.sizing_processes import sizing_pool
from rightsizer_slurm.submit.ticket_store import TicketStore

_LOG = logging.getLogger("rightsizer.slurm")
_HELD_JOBS_EVERY_S = 0.5
_LIMITS_EVERY = 12  # reads of the cluster for each read of accounting's limits: a minute by default
_BACKLOG = 1024
_SIZINGS = 2  # at once; each has a child process


def run(config: Path, *, monitor: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; with `monitor`, run the monitor too."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    site = read(config)
    uid = become(site.user)
    for folder in (site.socket.parent, site.state.parent):
        if not os.access(folder, os.W_OK | os.X_OK):
            remedy = f"is not a folder that {site.user} can write to; create it as in docs/slurm.md"
            raise InputError("rightsizer.conf", value=str(folder), remedy=remedy)
    watch = options_of(site.monitor, state=site.state, runs=site.runs) if monitor else None
    state = TicketStore(site.state)
    try:
        asyncio.run(_serve(site, state, frozenset({0, uid}), watch))
    finally:
        state.close()
    return 0


def release(config: Path) -> int:
    """End the holds of jobs that may run unsized, without a daemon: when it has ended or crashed."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    site = read(config)
    become(site.user)
    slurm = Slurm()
    release_all(slurm, SlurmCommands(slurm), site, "rightsizer is not running")
    return 0


def become(name: str) -> int:
    """Switch from root to that user; another user's process is unchanged. Returns the user's uid."""
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise InputError(
            "user", value=name, remedy="is not a user of this machine; write slurm.conf's SlurmUser"
        ) from None
    if os.geteuid() == 0 and user.pw_uid != 0:
        os.initgroups(name, user.pw_gid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        os.environ["HOME"] = user.pw_dir
    return user.pw_uid


async def _serve(
    site: SiteConfig, state: TicketStore, trusted: frozenset[int], watch: MonitorOptions | None
) -> None:
    pool = sizing_pool(_SIZINGS)
    server = Server(site=site, state=state, trusted=trusted, pool=pool)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    slurm = Slurm()
    releases = Releases(state, slurm, SlurmCommands(slurm), site)
    await _read_cluster(server, slurm, limits_too=True)
    listener = await _listen(server, site)
    pool.start()
    tasks = [
        asyncio.create_task(_poll_cluster(server, slurm, site)),
        asyncio.create_task(_release_held_jobs(server, releases)),
        asyncio.create_task(server.warm_up()),
    ]
    monitoring, stop_monitor = None, threading.Event()
    if watch is not None:
        served = DaemonMetrics(verdicts=server.verdicts, collector=releases)
        monitoring = asyncio.create_task(asyncio.to_thread(run_in_daemon, watch, slurm, stop_monitor, served))
    _LOG.info("listening at %s as uid %d", site.socket, os.geteuid())
    systemd.notify("READY=1")
    async with listener:
        await ended.wait()
    stop_monitor.set()
    if monitoring is not None:
        await monitoring  # it stores the result of the command that it has given
    pool.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    site.socket.unlink(missing_ok=True)
    await asyncio.to_thread(releases.end)
    _LOG.info("ended")


async def _listen(server: Server, site: SiteConfig) -> asyncio.Server:
    """Listen on the socket, in place of one that an earlier daemon left. Its mode limits who may connect."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(site.socket.lstat().st_mode):
            raise InputError("socket", value=str(site.socket), remedy="exists and is not a socket; remove it")
        site.socket.unlink()
    before = os.umask(0o111 if site.users else 0o117)
    try:
        return await asyncio.start_unix_server(
            server.serve, site.socket, limit=MAX_REQUEST_BYTES, backlog=_BACKLOG
        )
    finally:
        os.umask(before)


async def _poll_cluster(server: Server, slurm: Slurm, site: SiteConfig) -> None:
    """Poll the cluster; while slurmctld is unavailable, the last snapshot stays valid."""
    for number in itertools.count(1):
        await asyncio.sleep(site.refresh_s)
        await _read_cluster(server, slurm, limits_too=number % _LIMITS_EVERY == 0)
        await asyncio.to_thread(server.save_subjects)


async def _read_cluster(server: Server, slurm: Slurm, *, limits_too: bool) -> None:
    try:
        cluster = await asyncio.to_thread(snapshot.read, slurm)
    except SlurmError as error:
        _LOG.warning("the cluster cannot be read: %s", one_line(str(error)))
        return
    except Exception:  # one odd line of Slurm's must not end the daemon
        _LOG.exception("the cluster cannot be read")
        return
    limits = None
    if limits_too:
        try:
            limits = await asyncio.to_thread(accounting_limits.read, slurm)
        except (SlurmError, ValueError, LookupError) as error:
            _LOG.warning("the accounting limits cannot be read: %s", one_line(str(error)))
    server.update(cluster, limits)


async def _release_held_jobs(server: Server, releases: Releases) -> None:
    """Size and release held jobs, for as long as the daemon runs."""
    while True:
        await asyncio.sleep(_HELD_JOBS_EVERY_S)
        server.size_tickets()
        await asyncio.to_thread(releases.round)
        systemd.notify("WATCHDOG=1")
