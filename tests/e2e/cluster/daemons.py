"""Processes that stay: each in its own session, namespace and cgroup; recorded with pid and start time."""

import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import cgroups
from host import wait
from place import Place

GARBAGE_PERCENT = "400"
"""Go's GOGC. Four times the garbage, 0.7 GB a cluster, takes a seventh off the daemons' processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon's command and folder."""

    name: str
    argv: tuple[str, ...]
    cgroup: str
    namespace: str | None = None  # a network namespace; None: the machine's own network
    mounts_of: str | None = None  # the daemon whose mounts it sees; None: the machine's own


def start(at: Place, what: Daemon) -> None:
    """Start it; it is findable from its first instruction, even if we die now."""
    for folder in (at.log, at.state / "pids", at.state / "daemons"):
        folder.mkdir(parents=True, exist_ok=True)
    (at.state / "daemons" / what.name).write_text(json.dumps(asdict(what)))
    cgroups.make_leaf(what.cgroup)

    def before_exec() -> None:
        cgroups.join(what.cgroup)
        (at.state / "pids" / what.name).write_text(f"{os.getpid()} {_start_time(os.getpid())}")

    with (at.log / f"{what.name}.log").open("ab") as log:
        subprocess.Popen(
            [*_enter(at, what), *what.argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "GOGC": GARBAGE_PERCENT},
            preexec_fn=before_exec,  # noqa: PLW1509 (this program has one thread)
        )


def _enter(at: Place, what: Daemon) -> list[str]:
    # `nsenter --net`, not `ip netns exec`: the latter mounts a new /sys, which hides the cgroups
    options = [f"--net=/run/netns/{what.namespace}"] if what.namespace else []
    if what.mounts_of:
        options.append(f"--mount=/proc/{pid(at, what.mounts_of)}/ns/mnt")
    return ["nsenter", *options] if options else []


def names(at: Place) -> tuple[str, ...]:
    """Every daemon that was ever started here."""
    folder = at.state / "daemons"
    return tuple(sorted(p.name for p in folder.iterdir())) if folder.is_dir() else ()


def restart(at: Place, name: str) -> None:
    """Start a daemon again with its first command, unless it runs."""
    if pid(at, name) is None:
        start(at, Daemon(**json.loads((at.state / "daemons" / name).read_text())))


def stop(at: Place, name: str) -> None:
    """Kill a daemon at once, as a crash would, and wait until it is gone."""
    found = pid(at, name)
    if found is not None:
        os.kill(found, signal.SIGKILL)
        wait(f"the end of {name}", lambda: pid(at, name) is None, within_s=10, look_at=at.log)


def pid(at: Place, name: str) -> int | None:
    """The pid, if the process that was recorded still runs: a pid alone may meanwhile be somebody else's."""
    try:
        recorded, started = (at.state / "pids" / name).read_text().split()
        return int(recorded) if _start_time(int(recorded)) == started else None
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None


def _start_time(process: int) -> str:
    """Ticks since boot when it started; `proc(5)`. Raises if there is none, or only its zombie."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    if after_name[0] == "Z":
        raise ProcessLookupError(process)
    return after_name[19]
