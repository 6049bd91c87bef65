"""Submitting jobs with comments, and changing the site's file for one test."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

UNSIZED = ("the job is held (JobHeldUser) and released", "the plan is not sized yet; submit the job again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What sbatch said, and the job that came of it; none if it was refused."""

    said: str
    job: dict[str, str] | None

    @property
    def tres(self) -> dict[str, str]:
        """Requested resources by name."""
        job = self.job or {}
        return dict(part.split("=", 1) for part in job.get("TRES", job.get("ReqTRES", "")).split(","))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The cluster's rightsizer.conf, its daemon, and a folder that everybody may read.

    `again` submits once more, once its size is known, what a loaded machine could not size in time.
    """

    slurm: Any
    conf: Path
    folder: Path
    again: bool = True

    def sbatch(self, comment: str, *options: str, user: str | None = None, hold: bool = True) -> Submitted:
        """Submit a job that waits (or runs for a second)."""
        submitted = self._sbatch(comment, *options, user=user, hold=hold)
        give_up_s = time.monotonic() + 240
        while self.again and any(said in submitted.said for said in UNSIZED):
            assert time.monotonic() < give_up_s, submitted.said
            if submitted.job is None:  # refused where the site enforces
                time.sleep(0.5)
            else:
                job = submitted.job["JobId"]
                self.slurm.wait(
                    "the job is sized", lambda job=job: " ticket=" not in self.slurm.job(job)["Comment"], 120
                )
                self.slurm.run("scancel", job)
            submitted = self._sbatch(comment, *options, user=user, hold=hold)
        return submitted

    def _sbatch(self, comment: str, *options: str, user: str | None, hold: bool) -> Submitted:
        words = ["--hold"] if hold else []
        done = self.slurm.ask(
            "sbatch", "--parsable", "--output=/dev/null", *words, *options, f"--comment={comment}",
            "--wrap=sleep 1", user=user, cwd="/",
        )  # fmt: skip
        number = done.stdout.strip().split(";")[0]
        return Submitted(said=done.stderr, job=self.slurm.job(number) if number else None)

    @contextlib.contextmanager
    def settings(
        self, text: str = "", *, first: bool = False, restart: bool = False, **changed: object
    ) -> Iterator[None]:
        """Other settings, and more text (`first`: above the sections), for a while."""
        before = self.conf.read_text()
        after = before
        for key, value in changed.items():
            after = re.sub(rf"^{key} = .*$", f"{key} = {value}", after, flags=re.MULTILINE)
        try:
            self.conf.write_text(text + after if first else after + text)
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

    def log(self) -> str:
        """What the daemon has said so far."""
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
        self.slurm.wait("the daemon listens", path.exists, within_s=240)


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
