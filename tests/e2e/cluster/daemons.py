"""Processes that stay: each in its own session, namespace and cgroup; recorded with pid and start time."""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cgroups
from host import wait
from place import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """What is started, and where."""

    name: str
    argv: tuple[str, ...]
    cgroup: str
    namespace: str | None = None  # None: the machine's own network

    @property
    def command(self) -> tuple[str, ...]:
        # `nsenter --net`, not `ip netns exec`: the latter mounts a new /sys, which hides the cgroups
        enter = ("nsenter", f"--net=/run/netns/{self.namespace}") if self.namespace else ()
        return (*enter, *self.argv)


def daemon(name: str, argv: Sequence[str | Path], *, cgroup: str, namespace: str | None = None) -> Daemon:
    """A Daemon from arguments that may be paths."""
    return Daemon(name=name, argv=tuple(map(str, argv)), cgroup=cgroup, namespace=namespace)


def start(at: Place, what: Daemon) -> None:
    """Start it; it is findable from its first instruction, even if we die now."""
    for folder in (at.log, at.state / "pids", at.state / "daemons"):
        folder.mkdir(parents=True, exist_ok=True)
    recipe = {"argv": what.argv, "cgroup": what.cgroup, "namespace": what.namespace}
    (at.state / "daemons" / what.name).write_text(json.dumps(recipe))
    cgroups.make_leaf(what.cgroup)

    def before_exec() -> None:
        cgroups.join(what.cgroup)
        (at.state / "pids" / what.name).write_text(f"{os.getpid()} {_start_time(os.getpid())}")

    with (at.log / f"{what.name}.log").open("ab") as log:
        subprocess.Popen(
            what.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=before_exec,  # noqa: PLW1509 (this program has one thread)
        )


def names(at: Place) -> tuple[str, ...]:
    """Every daemon that was ever started here."""
    folder = at.state / "daemons"
    return tuple(sorted(p.name for p in folder.iterdir())) if folder.is_dir() else ()


def restart(at: Place, name: str) -> None:
    """Start a daemon again as it was started first; nothing if it runs."""
    if pid(at, name) is None:
        recipe = json.loads((at.state / "daemons" / name).read_text())
        start(at, daemon(name, recipe["argv"], cgroup=recipe["cgroup"], namespace=recipe["namespace"]))


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
