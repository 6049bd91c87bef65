"""A whole Slurm on this machine, six nodes with pretended GPUs, loopback only.

up               start it, or find it running; prints its `export ...` lines
down             stop it; no process, file or job is left
status           what runs
env              prints the `export ...` lines of the running cluster
node-down NODE   cut a node's power: its slurmd, job steps and their processes end at once
node-up NODE     start it again
kill NAME        kill one daemon (see status) as a crash would
end NAME         end it in order (SIGTERM)
start NAME       start it again
stop NAME        freeze one daemon where it stands (SIGSTOP)
continue NAME    let it go on

RIGHTSIZER_SLURM names the cluster (default: rightsizer); RIGHTSIZER_SLURM_PLUGIN=off leaves the plugin out,
RIGHTSIZER_SLURM_ACCOUNTING=on adds slurmdbd and its MariaDB.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import accounting
import machines
import settings
from place import NODES, REPOSITORY, RUNTIME, ClusterError, Place, place

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "unshare")
_UP_S = 60


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _preflight(at: Place) -> None:
    if os.geteuid() != 0:
        raise ClusterError("a Slurm needs root, to make device files and namespaces")
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    programs = (*_PROGRAMS, *(accounting.PROGRAMS if at.accounting else ()))
    if lacks := [name for name in programs if shutil.which(name, path=path) is None]:
        raise ClusterError(f"{', '.join(lacks)} not found: run tests/e2e/slurm/install.sh")
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], check=False).returncode != 0:
        raise ClusterError("may not make PID namespaces (in a container: run it with --privileged)")


@contextmanager
def _locked() -> Iterator[None]:
    """One `up` or `down` at a time; the kernel opens the lock when its holder dies."""
    RUNTIME.mkdir(parents=True, exist_ok=True)
    with (RUNTIME / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _up(at: Place) -> None:
    _preflight(at)
    with _locked():
        if not _runs(at):
            _end(at)
            _begin(at)
    _env(at)


def _runs(at: Place) -> bool:
    return machines.pid(at, "slurmctld") is not None


def _begin(at: Place) -> None:
    settings.write(at)
    if at.plugin:
        settings.install_plugin(at, REPOSITORY / "slurm/rightsizer_slurm/data")
    machines.start(at, "munged", _argv(at, "munged"))
    socket = at.run / "munge.sock"
    machines.wait("munged's socket", socket.exists, within_s=_UP_S, look_at=at.log)
    if at.accounting:
        _begin_accounting(at)
    for name in ("slurmctld", *NODES, *(["rightsizer"] if at.plugin else [])):
        machines.start(at, name, _argv(at, name))
    machines.wait("six idle nodes", lambda: _idle_nodes(at) == len(NODES), within_s=_UP_S, look_at=at.log)
    if at.plugin:
        socket = at.daemon / "plan.sock"
        machines.wait("rightsizer's socket", socket.exists, within_s=4 * _UP_S, look_at=at.log)


def _begin_accounting(at: Place) -> None:
    """MariaDB, slurmdbd, and this cluster in its books."""
    accounting.make_database(at)
    machines.start(at, "mariadbd", _argv(at, "mariadbd"))
    machines.wait("MariaDB", lambda: accounting.is_open(at), within_s=_UP_S, look_at=at.log)
    machines.start(at, "slurmdbd", _argv(at, "slurmdbd"))
    known = ("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster")
    machines.wait("slurmdbd", lambda: _answers(at, *known), within_s=_UP_S, look_at=at.log)
    if at.name not in _ask(at, *known).split():
        _ask(at, "sacctmgr", "--immediate", "add", "cluster", at.name)


def _argv(at: Place, name: str) -> list[str | Path]:
    """The command of a machine's daemon."""
    if name == "mariadbd":
        return accounting.mariadbd(at)
    if name == "slurmdbd":
        return ["slurmdbd", "-D"]
    if name == "munged":
        files = {
            "key-file": at.etc / "munge.key",
            "socket": at.run / "munge.sock",
            "pid-file": at.run / "munged.pid",
            "log-file": at.log / "munged.log",
            "seed-file": at.run / "munged.seed",
        }
        return ["munged", "--foreground", "--force", *(f"--{key}={path}" for key, path in files.items())]
    if name == "slurmctld":
        return ["slurmctld", "-D", "-f", at.conf]
    if name == "rightsizer":
        return [
            Path(sys.executable).with_name("rightsizer"),
            "slurm",
            "daemon",
            "--monitor",
            "--config",
            at.site,
        ]
    return ["slurmd", "-D", "-N", name, "-f", at.conf]


def _ask(at: Place, *argv: str) -> str:
    """The output of one of Slurm's commands; empty while it cannot run."""
    done = _asked(at, *argv)
    return done.stdout if done is not None and done.returncode == 0 else ""


def _answers(at: Place, *argv: str) -> bool:
    """True if Slurm's commands work."""
    done = _asked(at, *argv)
    return done is not None and done.returncode == 0


def _asked(at: Place, *argv: str) -> subprocess.CompletedProcess[str] | None:
    environment = {"PATH": os.environ["PATH"], "SLURM_CONF": str(at.conf)}
    try:
        return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=10, env=environment)
    except subprocess.TimeoutExpired:
        return None


def _idle_nodes(at: Place) -> int:
    return len(_ask(at, "sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())


def _down(at: Place) -> None:
    with _locked():
        _end(at)


def _end(at: Place) -> None:
    for name in machines.names(at):
        machines.kill(at, name)
    machines.kill_leftovers(at)
    shutil.rmtree(at.home, ignore_errors=True)


def _env(at: Place) -> None:
    if not _runs(at):
        raise ClusterError("no Slurm runs: `scripts/ci.py up slurm` starts one")
    _print(f"export SLURM_CONF={at.conf}")
    if at.plugin:
        _print(f"export RIGHTSIZER_SLURM_CONF={at.site}")


def _status(at: Place) -> None:
    for name in machines.names(at):
        pid = machines.pid(at, name)
        _print(f"{name:12} {'dead' if pid is None else f'pid {pid}'}")
    if not machines.names(at):
        _print("no Slurm runs")
    else:
        _print(_ask(at, "sinfo", "--format=%P %D %T %G").strip())


def _known(at: Place, name: str) -> str:
    if name not in machines.names(at):
        raise ClusterError(f"{name}: no such daemon; `status` lists them")
    return name


def _kill(at: Place, name: str) -> None:
    machines.kill(at, _known(at, name))


def _end_one(at: Place, name: str) -> None:
    machines.end(at, _known(at, name))


def _start(at: Place, name: str) -> None:
    if machines.pid(at, _known(at, name)) is None:
        machines.start(at, name, _argv(at, name))


def _stop(at: Place, name: str) -> None:
    machines.pause(at, _known(at, name), stop=True)


def _continue(at: Place, name: str) -> None:
    machines.pause(at, _known(at, name), stop=False)


def _node_down(at: Place, name: str) -> None:
    """Switch a node off; slurmctld learns of it at once instead of after its time-out."""
    _kill(at, _node(name))
    _ask(at, "scontrol", "update", f"nodename={name}", "state=down", "reason=power-cut")


def _node_up(at: Place, name: str) -> None:
    _start(at, _node(name))
    _ask(at, "scontrol", "update", f"nodename={name}", "state=resume")


def _node(name: str) -> str:
    if name not in NODES:
        raise ClusterError(f"{name}: the nodes are {', '.join(NODES)}")
    return name


COMMANDS: dict[str, Callable[..., None]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "env": _env,
    "node-down": _node_down,
    "node-up": _node_up,
    "kill": _kill,
    "end": _end_one,
    "start": _start,
    "stop": _stop,
    "continue": _continue,
}
_NO_ARGUMENT = ("up", "down", "status", "env")


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 could not (one line says why), 2 not a command."""
    name, *rest = arguments or ["help"]
    if name not in COMMANDS or len(rest) != (name not in _NO_ARGUMENT):
        sys.stderr.write(f"usage: {Path(__file__).name} COMMAND\n\n{__doc__}")
        return 2
    try:
        COMMANDS[name](place(), *rest)
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
