"""The daemon in a process of its own, on a stand-in for Slurm's commands; the sizing is real."""

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rightsizer_engine.errors import InputError
from rightsizer_slurm.daemon import run

DAEMON = """
import sys
from pathlib import Path
from rightsizer_engine.errors import InputError
from rightsizer_slurm.daemon import run
try:
    sys.exit(run(Path(sys.argv[1]), monitor=True))
except InputError as error:
    sys.exit(f"{error.field}: {error}")
"""
REQUEST = b"""RIGHTSIZER 2 SIZE
uid=1000
comment=rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h
partition=h100
uid=1000
END
"""
LONG_S = 90.0  # on a busy machine; nothing here waits for it


class Daemon:
    """A daemon's process and files: `rightsizer.conf`, the socket, the log."""

    def __init__(self, folder: Path, commands: Path) -> None:
        self.folder, self.commands = folder, commands
        self.socket, self.log = folder / "plan.sock", folder / "log"
        self.configure()

    def configure(self, **values: object) -> None:
        """Write `rightsizer.conf`, with these values in place of the usual ones."""
        user = pwd.getpwuid(os.geteuid()).pw_name
        usual = {"socket": self.socket, "state": self.folder / "state.db", "user": user, "refresh_s": 0.5}
        site = self.folder / "rightsizer.conf"
        site.write_text("".join(f"{name} = {value}\n" for name, value in (usual | values).items()))
        site.chmod(0o600)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The process; killed at the end if it still runs."""
        path = f"{self.commands}:{os.environ['PATH']}"
        argv = [sys.executable, "-c", DAEMON, str(self.folder / "rightsizer.conf")]
        with self.log.open("w") as file:
            process = subprocess.Popen(argv, env=os.environ | {"PATH": path}, stderr=file)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def logs(self, text: str) -> Callable[[], bool]:
        """A condition: the log contains this text."""
        return lambda: text in self.log.read_text()

    def until(self, process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
        """Wait for a condition while the process runs."""
        end_s = time.monotonic() + LONG_S
        while not condition():
            assert process.poll() is None, self.log.read_text()
            assert time.monotonic() < end_s, self.log.read_text()
            time.sleep(0.02)

    def ask(self) -> str:
        """The response to a request."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LONG_S)
            client.connect(str(self.socket))
            client.sendall(REQUEST)
            return b"".join(iter(lambda: client.recv(4096), b"")).decode()


@pytest.fixture
def daemon(tmp_path: Path, fake_slurm) -> Daemon:
    return Daemon(tmp_path, fake_slurm.folder)


@pytest.mark.slow
def test_it_sizes_while_slurm_responds_or_not_and_ends_on_sigterm(daemon, fake_slurm) -> None:
    with daemon.running() as process:
        daemon.until(process, daemon.logs("listening at"))
        daemon.until(process, lambda: daemon.ask().startswith("RIGHTSIZER 2 OK\n"))
        response = daemon.ask()
        assert "partition=h100" in response
        fake_slurm.breaks("nodes", "slurm_load_node error: Unable to contact slurm controller")
        daemon.until(process, daemon.logs("the cluster cannot be read: "))
        assert daemon.ask() == response  # from the last snapshot
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0
    assert not daemon.socket.exists()
    assert daemon.log.read_text().endswith("ended\n")


@pytest.mark.slow
def test_a_slow_request_is_held_and_sized_when_its_job_is_found(daemon, fake_slurm) -> None:
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind(str(daemon.socket))  # a daemon that was killed leaves its socket
    with daemon.running() as process:
        daemon.until(process, daemon.logs("listening at"))
        ticket = daemon.ask().partition("ticket=")[2].split()[0]
        fake_slurm.breaks("squeue", "slurm_load_jobs error: Unable to contact slurm controller")
        daemon.until(process, daemon.logs("held jobs wait: "))
        fake_slurm.prints("squeue", held_job(ticket))
        daemon.until(process, daemon.logs(f"job 7, ticket {ticket}: sized"))
    assert any(call.startswith("update JobId=7 NumNodes=1-1") for call in fake_slurm.calls("scontrol"))
    assert "release 7" in fake_slurm.calls("scontrol")


@pytest.mark.slow
def test_held_jobs_are_released_at_its_end_and_without_a_daemon(daemon, fake_slurm) -> None:
    with daemon.running() as process:
        daemon.until(process, daemon.logs("listening at"))
        fake_slurm.prints("squeue", held_job("12ab0"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) == 0
    fake_slurm.prints("squeue", held_job("34cd0").replace(": 7", ": 8"))
    argv = [Path(sys.executable).with_name("rightsizer"), "slurm", "daemon", "--release", "--config"]
    path = f"{daemon.commands}:{os.environ['PATH']}"
    subprocess.run([*argv, daemon.folder / "rightsizer.conf"], env=os.environ | {"PATH": path}, check=True)
    assert {"release 7", "release 8"} <= set(fake_slurm.calls("scontrol"))


def held_job(ticket: str) -> str:
    """The output of squeue for the job with this ticket."""
    return f"""{{"jobs": [{{"job_id": 7, "name": "train", "user_id": 1000, "partition": "h100",
        "job_state": ["PENDING"], "state_reason": "JobHeldUser", "priority": {{"set": true, "number": 0}},
        "comment": "rightsizer: model=llama-3.1-8b ticket={ticket}"}}]}}"""


@pytest.mark.parametrize(
    ("values", "field"),
    [({"user": "nobody-of-that-name"}, "user"), ({"state": "/nowhere/state.db"}, "rightsizer.conf")],
    ids=["no such user", "no folder for its state"],
)
def test_a_setting_that_cannot_work_is_refused_before_anything_is_read(daemon, values, field) -> None:
    daemon.configure(**values)
    with pytest.raises(InputError) as refused:
        run(daemon.folder / "rightsizer.conf")
    assert refused.value.field == field


@pytest.mark.slow
def test_a_file_in_the_socket_s_place_is_not_removed(daemon) -> None:
    daemon.socket.write_text("mine")
    with daemon.running() as process:
        assert process.wait(LONG_S) == 1
    assert "exists and is not a socket; remove it" in daemon.log.read_text()
    assert daemon.socket.read_text() == "mine"
