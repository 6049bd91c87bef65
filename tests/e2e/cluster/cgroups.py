"""Control groups: where a cluster's processes are found again, whoever started them.

A shim that outlives its containerd and a container that outlives its shim stay in the cgroup of their birth.
So all that a cluster runs, and nothing else, is in its cgroup: the members are ended, never a name.
"""

import os
import signal
import time
from pathlib import Path

from place import ClusterError

MOUNT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpuset", "cpu", "memory", "pids")
GONE_WITHIN_S = 15.0
WEIGHT = 8  # processes that a cluster counts as on a busy machine; a group counts as one, however many it has


def _unified() -> bool:
    return (MOUNT / "cgroup.controllers").exists()


def hierarchies() -> tuple[Path, ...]:
    """One folder on cgroup v2; one for each controller on v1 (and the unified one beside them)."""
    if _unified():
        return (MOUNT,)
    below = sorted(MOUNT.iterdir()) if MOUNT.is_dir() else []
    return tuple(p for p in below if not p.is_symlink() and (p / "cgroup.procs").exists())


def _delegate(folder: Path) -> None:
    """Enable the children's controllers: v2 hands controllers down on request, v1's cpuset starts empty."""
    if _unified():
        there = (folder / "cgroup.controllers").read_text().split()
        wanted = [f"+{c}" for c in CONTROLLERS if c in there]
        (folder / "cgroup.subtree_control").write_text(" ".join(wanted))
        return
    for setting in ("cpuset.cpus", "cpuset.mems"):
        mine, parents = folder / setting, folder.parent / setting
        if mine.exists() and not mine.read_text().strip():
            mine.write_text(parents.read_text())


def _weigh(folder: Path) -> None:
    for setting, one in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (folder / setting).exists():
            (folder / setting).write_text(str(WEIGHT * one))


def make(group: str) -> None:
    """The cgroup in every hierarchy, able to have children."""
    for root in hierarchies():
        folder = root
        if _unified():
            _delegate(root)
        for part in Path(group).parts:
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _delegate(folder)
        _weigh(root / Path(group).parts[0])


def make_leaf(group: str) -> None:
    """A cgroup for processes; v2 wants them where no children are."""
    make(str(Path(group).parent))
    for root in hierarchies():
        folder = root / group
        folder.mkdir(exist_ok=True)
        if not _unified():
            _delegate(folder)


def join(group: str) -> None:
    """Put the calling process into the cgroup."""
    for root in hierarchies():
        (root / group / "cgroup.procs").write_text(str(os.getpid()))


def members(group: str) -> frozenset[int]:
    """The processes in the cgroup and below, by any hierarchy."""
    found: set[int] = set()
    for root in hierarchies():
        for folder, *_ in os.walk(root / group):  # unlike rglob it goes on where one goes away meanwhile
            try:
                found.update(int(pid) for pid in Path(folder, "cgroup.procs").read_text().split())
            except OSError:
                continue
    return frozenset(found - {0})


def kill(group: str, *, but: int | None = None) -> None:
    """End every process of the cgroup; in rounds, because one may fork between the look and the blow."""
    end_s = time.monotonic() + GONE_WITHIN_S
    while alive := members(group) - {but}:
        if time.monotonic() > end_s:
            raise ClusterError(f"processes {sorted(alive)} of cgroup {group} do not end")
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def remove(group: str) -> None:
    """The cgroup and all below it, in every hierarchy."""
    end_s = time.monotonic() + GONE_WITHIN_S
    for root in hierarchies():
        top = root / group
        while top.exists():
            for folder, *_ in os.walk(top, topdown=False):
                _rmdir(Path(folder))
            if top.exists() and time.monotonic() > end_s:
                raise ClusterError(f"cgroup {top} cannot be removed")


def _rmdir(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        time.sleep(0.01)  # a process that was killed is still on its way out: the caller looks again
