"""The processes of one attempt: a rendezvous store and one torchrun agent per worker, all on loopback.

One agent per worker makes torchrun elastic on one machine: an agent can die and be replaced like a node.
Every process has its own session, so a Ctrl-C at the terminal reaches only the supervisor. Every process
also dies with the supervisor and carries a token by which leftovers are identified.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import Path

from rightsizer_engine.values import immutable
from rightsizer_launch.argv.torchrun import Program, Torchrun, environment, program_arguments
from rightsizer_launch.worker.progress import (
    ENV_ATTEMPT,
    ENV_DIE_WITH_PARENT,
    ENV_METRICS_PORT,
    ENV_RENDEZVOUS_KEY_FILE,
    ENV_RUN_DIRECTORY,
    naming,
)
from rightsizer_launch.worker.rendezvous import free_port

_HOST = "127.0.0.1"
_TOKEN = "RIGHTSIZER_TOKEN"  # noqa: S105 -- marks processes, guards nothing


@immutable
class JobSpec:
    """One attempt: `min_workers` to `workers` workers that each run `program`."""

    name: str
    attempt: int
    workers: int
    min_workers: int
    program: Program
    run_directory: Path
    working_directory: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    threads_per_worker: int = 1
    cuda: bool = False
    grace_s: float = 60.0

    @property
    def logs(self) -> Path:
        """The folder of this attempt's logs."""
        return self.run_directory / "logs" / f"attempt-{self.attempt}"


class LocalJob:
    """Starts, replaces and ends the processes."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.began = time.time()
        self._token = secrets.token_hex(16)
        self._store_port, self._metrics_port = free_port(_HOST), free_port(_HOST)
        self._agents: dict[int, subprocess.Popen[bytes]] = {}
        self._key = _write_key(spec.run_directory)
        self._store = self._start_store()
        for slot in range(spec.workers):
            self._start_agent(slot)

    @property
    def store_lives(self) -> bool:
        """Whether the rendezvous store runs."""
        return self._store.poll() is None

    @property
    def store_pid(self) -> int:
        """The store's process id."""
        return self._store.pid

    @property
    def agent_pids(self) -> tuple[int, ...]:
        """The agents' process ids by slot."""
        return tuple(agent.pid for _, agent in sorted(self._agents.items()))

    def living(self) -> int:
        """The number of running agents."""
        return sum(agent.poll() is None for agent in self._agents.values())

    def exit_codes(self) -> tuple[int, ...]:
        """Exit codes of the ended agents."""
        codes = (agent.poll() for agent in self._agents.values())
        return tuple(code for code in codes if code is not None)

    def replace_lost(self) -> int:
        """Replace each failed agent while others run; returns the number."""
        lost = [slot for slot, agent in self._agents.items() if agent.poll() not in {None, 0}]
        for slot in lost:
            self._start_agent(slot)
        return len(lost)

    def failures(self) -> int:
        """Worker failures so far: every agent's torchrun numbers its log folders by restart."""
        return max((self._slot_failures(slot) for slot in self._agents), default=0)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the agents, which forward it; the workers save and exit."""
        for agent in self._agents.values():
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)

    def stop(self, *, grace_s: float, cut_short: Callable[[], bool] = lambda: False) -> None:
        """Request a stop, wait `grace_s` or until `cut_short()`, then kill the rest, the store last."""
        self.ask_to_stop()
        until = time.monotonic() + grace_s
        while self.living() and time.monotonic() < until and not cut_short():
            time.sleep(0.1)
        self.kill()

    def kill(self) -> None:
        """End every process of this attempt now."""
        for process in (*self._agents.values(), self._store):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def leftovers(self) -> tuple[int, ...]:
        """Processes of this attempt that still run, anywhere in the process tree."""
        mark = f"{_TOKEN}={self._token}".encode()
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    pids.append(int(path.parent.name))
        return tuple(pids)

    def _slot_failures(self, slot: int) -> int:
        folder = self.spec.logs / f"worker-{slot}"
        runs = [path for path in folder.glob("*") if path.is_dir()] if folder.is_dir() else []
        restarts = [
            max((int(path.name.removeprefix("attempt_")) for path in run.glob("attempt_*")), default=0)
            for run in runs
        ]
        return sum(restarts) + max(0, len(runs) - 1)

    def _start_store(self) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            "rightsizer_launch.worker.rendezvous",
            "--host",
            _HOST,
            "--port",
            str(self._store_port),
        ]
        return self._start(argv, {}, self.spec.logs / "store.log")

    def _start_agent(self, slot: int) -> None:
        spec = self.spec
        run = Torchrun(
            name=spec.name,
            attempt=spec.attempt,
            endpoint=f"{_HOST}:{self._store_port}",
            min_nodes=spec.min_workers,
            max_nodes=spec.workers,
            local_address=_HOST,
            join_s=300,
            last_call_s=5,
            keep_alive_s=2,
            shutdown_s=int(spec.grace_s),
            log_directory=str(spec.logs / f"worker-{slot}"),
        )
        variables = environment(run) | {
            ENV_RUN_DIRECTORY: str(spec.run_directory),
            ENV_ATTEMPT: str(spec.attempt),
            ENV_RENDEZVOUS_KEY_FILE: str(self._key),
            ENV_METRICS_PORT: str(self._metrics_port),
            "OMP_NUM_THREADS": str(spec.threads_per_worker),
        }
        if spec.cuda:
            variables["CUDA_VISIBLE_DEVICES"] = _visible(slot)
        else:
            variables["GLOO_SOCKET_IFNAME"] = "lo"
        argv = [sys.executable, "-m", "rightsizer_launch.worker.entrypoint", *program_arguments(spec.program)]
        log = spec.logs / f"agent-{slot}.log"
        self._agents[slot] = self._start(argv, {**variables, **spec.environment}, log)

    def _start(self, argv: list[str], variables: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        log.parent.mkdir(parents=True, exist_ok=True)
        ours = {ENV_DIE_WITH_PARENT: "1", _TOKEN: self._token}
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                cwd=self.spec.working_directory,
                env={**os.environ, **variables, **ours},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


def _visible(slot: int) -> str:
    """The slot-th of the visible GPUs."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return str(slot) if allowed is None else allowed.split(",")[slot].strip()


def _write_key(run_directory: Path) -> Path:
    """A new secret for an attempt's rendezvous, in a file that only this user can read."""
    path = run_directory / "rendezvous.key"
    path.unlink(missing_ok=True)
    with (
        naming(path),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
    ):
        file.write(secrets.token_bytes(32))
    return path


def next_attempt(spec: JobSpec) -> JobSpec:
    """The same job as a new attempt, which no process of the old one can join."""
    return replace(spec, attempt=spec.attempt + 1)
