"""Machines: each is a PID namespace, so that one SIGKILL ends its daemon, its job steps and all below."""

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from place import NODES, ClusterError, Place

_POLL_S = 0.02
_INIT = """
if [ -n "$CLOSED" ]; then
  kept=$(mktemp -d) && mount --rbind "$CLOSED" "$kept" && mount -t tmpfs -o mode=755 none "$CLOSED" || exit 1
  for folder in "$PYTHON" "$STACKS"; do
    mkdir -p "$folder" && mount --bind "$kept${folder#"$CLOSED"}" "$folder" || exit 1
  done
  umount --recursive "$kept" && rmdir "$kept" || exit 1
fi
echo "$FIRST_PID" > /proc/sys/kernel/ns_last_pid || exit 1
unset CLOSED PYTHON STACKS FIRST_PID
"$@" & while kill -0 $! 2>/dev/null; do wait; done
"""
"""PID 1 of a machine: reaps orphans while its daemon lives, and ends with it.

Processes are numbered from FIRST_PID on, others on each machine: torchrun tells its agents by address and
PID, and here all machines have one address.

Where Python is in a folder closed to other users (a root's pyenv), the machine sees an open one instead, with
the environments of the training stacks if they are in the same folder. In a chroot that Python is a mount.
"""
_STACKS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rightsizer/stacks"
"""Where scripts/stack_env.sh keeps them."""


def start(at: Place, name: str, argv: list[str | Path]) -> None:
    """Start a machine with one daemon in the foreground; findable from its first instruction."""
    pids = at.home / "pids"
    pids.mkdir(parents=True, exist_ok=True)

    def before_exec() -> None:
        (pids / name).write_text(f"{os.getpid()} {_start_time(os.getpid())}")

    with (at.log / f"{name}.out").open("ab") as log:
        subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", _INIT, name, *argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
            env={
                "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
                "SLURM_CONF": str(at.conf),
                "FIRST_PID": _first_pid(name),
                **_closed(),
            },
            preexec_fn=before_exec,  # noqa: PLW1509 (this program has one thread)
        )


def _first_pid(name: str) -> str:
    """Far from those of the other nodes."""
    return str(1000 * (1 + NODES.index(name)) if name in NODES else 100)


def _closed() -> dict[str, str]:
    """The outermost folder around this Python that only its owner may enter, if there is one."""
    python = Path(sys.base_prefix).resolve()
    shut = [folder for folder in reversed(python.parents) if not folder.stat().st_mode & stat.S_IXOTH]
    if not shut:
        return {}
    stacks = _STACKS if _STACKS.is_relative_to(shut[0]) else python
    stacks.mkdir(parents=True, exist_ok=True)
    return {"CLOSED": str(shut[0]), "PYTHON": str(python), "STACKS": str(stacks)}


def names(at: Place) -> tuple[str, ...]:
    """Every machine that was ever started here."""
    folder = at.home / "pids"
    return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()


def pid(at: Place, name: str) -> int | None:
    """The machine's outermost process, if it still runs: a pid alone may meanwhile be somebody else's."""
    try:
        recorded, started = (at.home / "pids" / name).read_text().split()
        return int(recorded) if _start_time(int(recorded)) == started else None
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None


def kill(at: Place, name: str) -> None:
    """End a machine at once, as a power cut would, and wait until it is gone."""
    found = pid(at, name)
    if found is None:
        return
    inside = _children(found)
    for process in (*inside, found):
        _signal(process, signal.SIGKILL)
    wait(f"the end of {name}", lambda: pid(at, name) is None, within_s=10, look_at=at.log)


def end(at: Place, name: str) -> None:
    """Ask a machine's daemon to end (SIGTERM), as a shutdown would, and wait until it has."""
    found = pid(at, name)
    if found is None:
        return
    for init in _children(found):
        for daemon in _children(init):
            _signal(daemon, signal.SIGTERM)
    wait(f"the end of {name}", lambda: pid(at, name) is None, within_s=60, look_at=at.log)


def pause(at: Place, name: str, *, stop: bool) -> None:
    """Stop every process of a machine where it stands, or let it go on."""
    found = pid(at, name)
    if found is None:
        raise ClusterError(f"{name}: does not run")
    for process in _descendants(found):
        _signal(process, signal.SIGSTOP if stop else signal.SIGCONT)


def leftovers(at: Place) -> tuple[int, ...]:
    """Processes of this cluster that no record leads to: of machines whose records were lost, and of jobs.

    Told by their environment. Who only works with the cluster (a shell, salloc, sbatch) is none of them: jobs
    have a node's name in theirs, and of the others a machine's outermost process alone counts.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        ours = f"SLURM_CONF={at.conf}".encode() in variables
        machine = words[0] == b"unshare" and b"--kill-child" in words
        if ours and (machine or any(variable.startswith(b"SLURMD_NODENAME=") for variable in variables)):
            found.append(int(process.name))
    return tuple(found)


def kill_leftovers(at: Place) -> None:
    """End them at once, and wait until they are gone."""
    for process in leftovers(at):
        for each in (*_children(process), process):
            _signal(each, signal.SIGKILL)
    wait("the end of what was left over", lambda: not leftovers(at), within_s=10, look_at=at.log)


def wait(what: str, condition: Callable[[], bool], *, within_s: float, look_at: Path) -> None:
    """Return when the condition holds."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            raise ClusterError(f"{what}: not there after {within_s:.0f} s; see {look_at}")
        time.sleep(_POLL_S)


def _descendants(process: int) -> tuple[int, ...]:
    children = _children(process)
    return (*children, *(below for child in children for below in _descendants(child)))


def _children(process: int) -> tuple[int, ...]:
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ()
    return tuple(int(child) for child in listed.split())


def _signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def _start_time(process: int) -> str:
    """Ticks since boot when it started; `proc(5)`. Raises if there is none, or only its zombie."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise ProcessLookupError(process) from None
    if after_name[0] == "Z":
        raise ProcessLookupError(process)
    return after_name[19]
