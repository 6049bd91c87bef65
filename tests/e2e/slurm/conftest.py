"""Submitting jobs with comments, and changing the site's file for one test."""

import contextlib
import itertools
import os
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HELD = "the job is held (JobHeldUser) and released"
LATE = (
    "not sized (timeout)",
    "not sized (the daemon did not answer a moment ago)",
    "not sized (its size is not yet known)",
)
"""What the plugins say when a busy machine answers too late, and in the pause after it."""
TIMES = ("timeout_s", "cooldown_s", "hold_after_s", "refresh_s")
"""Tests run at the shipped values of these; whose subject is another value says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The output of sbatch, and the job; none if it was refused."""

    said: str
    job: dict[str, str] | None

    @property
    def tres(self) -> dict[str, str]:
        """Requested resources by name."""
        job = self.job or {}
        return dict(part.split("=", 1) for part in job.get("TRES", job.get("ReqTRES", "")).split(","))


def _sbatch(comment: str, *options: str, hold: bool) -> tuple[str, ...]:
    held = ("--hold",) if hold else ()
    own = ("--parsable", "--output=/dev/null", f"--comment={comment}", "--wrap=sleep 1")
    return ("sbatch", *held, *options, *own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster's rightsizer.conf, its daemon, and a folder that everybody may read.

    A new size is held first, as it ships. With `again` such a job is submitted once more when its size is
    known: then it is answered at once, and the terminal has the answer.
    """

    slurm: Any
    conf: Path
    folder: Path
    again: bool = True

    def sbatch(self, comment: str, *options: str, user: str | None = None, hold: bool = True) -> Submitted:
        """Submit a job that waits (or runs for a second), again if a busy machine did not respond in time."""
        argv = _sbatch(comment, *options, hold=hold)
        submitted = self._submitted(self.answered(*argv, user=user))
        while self.again and HELD in submitted.said:
            settled = self.settled(submitted)
            if "plan=" in comment:  # a file is read each time, so its jobs are held each time
                return settled
            self.slurm.ask("scancel", submitted.job["JobId"] if submitted.job else "")
            submitted = self._submitted(self.answered(*argv, user=user))
        return submitted

    def submit(self, comment: str, *options: str, user: str | None = None) -> Submitted:
        """Submit a job that runs for a second, whatever becomes of it."""
        return self._submitted(self.slurm.ask(*_sbatch(comment, *options, hold=False), user=user, cwd="/"))

    def answered(self, *argv: str | Path, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """A submit to which the daemon responded in time; repeated until it does on a busy machine."""
        return self.in_time(lambda _: argv, user=user)

    def in_time(
        self, argv: Callable[[int], tuple[str | Path, ...]], *, user: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The first submit of `argv(0)`, `argv(1)`, ... that the daemon has answered in time.

        A size whose answer was late is known the next time. So a test of what is not known yet asks for
        another one each time.
        """
        give_up_s = time.monotonic() + 240
        for attempt in itertools.count():
            done: subprocess.CompletedProcess[str] = self.slurm.ask(*argv(attempt), user=user, cwd="/")
            if not any(said in done.stderr for said in LATE):
                return done
            assert time.monotonic() < give_up_s, done.stderr
            if number := done.stdout.strip().split(";")[0]:
                self.slurm.ask("scancel", number)
            time.sleep(1)
        raise AssertionError("itertools.count does not end")

    def unknown(self, comment: str, *options: str, hours: float, user: str | None = None) -> Submitted:
        """A job whose size is not cached: `comment` has {} for its deadline, near `hours`."""

        def argv(attempt: int) -> tuple[str, ...]:
            return _sbatch(comment.format(hours + attempt / 100), *options, hold=False)

        return self._submitted(self.in_time(argv, user=user))

    def settled(self, submitted: Submitted) -> Submitted:
        """A held job once the daemon has dealt with it; one that it ended counts as refused."""
        assert submitted.job is not None
        job = submitted.job["JobId"]

        def is_settled() -> bool:  # the daemon writes the reason of a refusal, then cancels the job
            found = self.slurm.job(job)
            said = found.get("Comment", "")
            return " ticket=" not in said and (" refused: " not in said or found["JobState"] == "CANCELLED")

        self.slurm.wait("the job is sized", is_settled, 120)
        found = self.slurm.job(job)
        if found["JobState"] == "CANCELLED":
            return Submitted(said=found["Comment"], job=None)
        return Submitted(said=submitted.said, job=found)

    def _submitted(self, done: subprocess.CompletedProcess[str]) -> Submitted:
        number = done.stdout.strip().split(";")[0]
        return Submitted(said=done.stderr, job=self.slurm.job(number) if number else None)

    @contextlib.contextmanager
    def settings(
        self, text: str = "", *, restart: bool = False, why: str = "", **changed: object
    ) -> Iterator[None]:
        """Other settings, and more text behind them, for a while; `why` one of TIMES is not as it ships."""
        assert why or not set(changed) & set(TIMES), f"say why {changed} differ from what ships"
        before = self.conf.read_text()
        after = before
        for key, value in changed.items():
            after = re.sub(rf"^{key} = .*$", f"{key} = {value}", after, flags=re.MULTILINE)
        try:
            self.conf.write_text(after + text)
            self.seen(restart=restart)
            yield
        finally:
            self.conf.write_text(before)
            self.seen(restart=restart)

    def seen(self, *, restart: bool = False) -> None:
        """Wait until the plugin reads its file again, on the next second of the clock; and the daemon."""
        if restart:
            self.restart()
        time.sleep(1.01 - time.time() % 1.0)

    def restart(self) -> None:
        """End the daemon and start it again."""
        self.slurm.control("kill", "rightsizer")
        self.start()

    @contextlib.contextmanager
    def blind(self, **changed: object) -> Iterator[None]:
        """A daemon that knows no cluster, so that it holds jobs and sizes none."""
        with self.settings(refresh_s=600, why="the daemon reads the cluster only when it starts", **changed):
            self.slurm.control("end", "slurmctld")
            self.restart()
            self.slurm.control("start", "slurmctld")
            self.slurm.wait("Slurm answers", lambda: self.slurm.ask("scontrol", "ping").returncode == 0)
            yield
        self.restart()

    def reload(self, text: str | None = None) -> None:
        """slurmctld loads its plugin again when the file is newer by a second: that ends a pause too."""
        plugin = self.conf.with_name("job_submit.lua")
        newer_s = int(plugin.stat().st_mtime) + 1
        if text is not None:
            plugin.write_text(text)
        os.utime(plugin, (newer_s, newer_s))

    def log(self) -> str:
        """The daemon's log so far."""
        return (self.conf.parent.parent / "log" / "rightsizer.out").read_text()

    def idle(self) -> None:
        """Wait until the daemon has seen that no GPU is in use: it answers from what it read last."""
        said = "h100: 32 x h100 (32 free), a100: 8 x a100 (8 free)"
        self.slurm.wait(
            "the daemon sees idle nodes", lambda: self.log().rpartition(" INFO cluster: ")[2].startswith(said)
        )

    def start(self) -> None:
        """Start the daemon, and wait until it listens."""
        path = self.conf.parent.parent / "run" / "rightsizer" / "plan.sock"
        path.unlink(missing_ok=True)
        self.slurm.control("start", "rightsizer")
        self.slurm.wait("the daemon listens", lambda: _listens(path), within_s=240)


def _listens(path: Path) -> bool:
    """Whether a daemon accepts connections: its socket is there a moment earlier."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture(scope="session")
def site_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Site]:
    """The site of a cluster."""

    def make(slurm: Any) -> Site:
        folder = tmp_path_factory.mktemp("open")
        for each in (folder, *folder.parents):
            if each.owner() == "root" and str(each).startswith("/tmp/"):  # noqa: S108
                each.chmod(0o755)
        return Site(slurm=slurm, conf=Path(slurm.environment["RIGHTSIZER_SLURM_CONF"]), folder=folder)

    return make


@pytest.fixture
def site(slurm: Any, site_of: Callable[[Any], Site]) -> Iterator[Site]:
    """The site; jobs that a test leaves are cancelled."""
    made = site_of(slurm)
    yield made
    slurm.cancel_all()
    made.idle()


Handler = Callable[[socket.socket], None]


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[Callable[[Handler], Path]]:
    """Instead of the daemon: a socket whose connections a test handles, as the daemon never would."""
    path = Path("/run") / f"rightsizer-{tmp_path.name[:40]}.sock"
    ended = threading.Event()
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(listener: socket.socket, handler: Handler) -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                handler(connection)

    def start(handler: Handler) -> Path:
        listener = socket.socket(socket.AF_UNIX)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o666)
        listener.listen(64)
        listener.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listener, handler), daemon=True)
        thread.start()
        listeners.append(listener)
        threads.append(thread)
        return path

    yield start
    ended.set()
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()
    path.unlink(missing_ok=True)
