"""Up and down. Down removes what is there, whatever happened before; up begins so unless all is well."""

import json
import shutil
import sys
import time
from pathlib import Path

import build
import cgroups
import control_plane
import daemons
import host
import images
import kubectl
import network
import node
import pki
from place import ClusterError, Node, Place, nodes

READY_S = 90
MOUNTS = Path("/proc/self/mounts")
WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_WATCHERS = 1024  # the default of 128 is too few for three clusters: a kubelet then ends at its start


def up(at: Place) -> None:
    """Start a cluster: the one that runs, or a new one."""
    binaries = build.binaries(at)
    with host.locked(_lock(at)):
        if _complete(at, binaries):
            return
        _clear(at)
        _start(at, binaries)


def down(at: Place) -> None:
    """Remove the whole cluster."""
    if at.state.parent.exists():
        with host.locked(_lock(at)):
            _clear(at)


def _lock(at: Place) -> Path:
    """Only one `up` or `down` of a cluster at a time."""
    return at.state.with_suffix(".lock")


def _start(at: Place, binaries: dict[str, Path]) -> None:
    began_s = time.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:5.1f} s  {what}\n")

    if int(WATCHERS.read_text()) < ENOUGH_WATCHERS:
        WATCHERS.write_text(str(ENOUGH_WATCHERS))
    at.state.mkdir(mode=0o711)  # pods reach their volumes through it
    (at.state / "made-of.json").write_text(_made_of(at, binaries))
    network.make(at)
    for each in nodes(at):
        node.start_containerd(each, binaries)
    pki.make(at)
    say("namespaces and certificates")
    control_plane.start_api_server(at, binaries)
    archive = at.state / "images.tar"
    images.write_archive(archive, images.images(binaries["pause"]))
    for each in nodes(at):
        node.import_images(each, archive)
    say("images imported")
    control_plane.start_controllers(at, binaries)
    say("API server answers")
    for each in nodes(at):
        node.start_kubelet(each, binaries)
    host.wait("all nodes ready, with GPUs", lambda: _nodes_ready(at), within_s=READY_S, look_at=at.log)
    host.wait(
        "a default service account", lambda: kubectl.has_default_account(at), within_s=30, look_at=at.log
    )
    say(f"{at.nodes} nodes ready, each with {at.gpus_per_node} pretended GPUs")


def _nodes_ready(at: Place) -> bool:
    there = [n for n in kubectl.nodes(at) if kubectl.node_is_ready(n)]
    return len([n for n in there if kubectl.allocatable_gpus(n) == at.gpus_per_node]) >= at.nodes


def _made_of(at: Place, binaries: dict[str, Path]) -> str:
    made_of = {
        "nodes": at.nodes,
        "python": sys.prefix,
        **{name: str(path) for name, path in binaries.items()},
    }
    return json.dumps(made_of, sort_keys=True)


def _complete(at: Place, binaries: dict[str, Path]) -> bool:
    record = at.state / "made-of.json"
    return (
        record.exists()
        and record.read_text() == _made_of(at, binaries)
        and all(daemons.pid(at, name) is not None for name in daemons.names(at))
        and kubectl.ready(at)
        and _nodes_ready(at)
    )


def _clear(at: Place) -> None:
    """Processes first, because they hold the rest: a node's mounts go with its last process."""
    for name in daemons.names(at):
        daemons.stop(at, name)
    cgroups.kill(at.cgroup)
    cgroups.remove(at.cgroup)
    network.remove(at)
    if at.state.exists():
        shutil.rmtree(at.state)
    if left := leftovers(at):
        raise ClusterError(f"left behind: {', '.join(left)}")


def _mounts_below(folder: Path) -> list[Path]:
    # mounts(5) writes a space as \\040; none of our paths has one
    found = (Path(line.split()[1]) for line in MOUNTS.read_text().splitlines())
    return sorted(p for p in found if p.is_relative_to(folder))


def leftovers(at: Place) -> tuple[str, ...]:
    """Descriptions of the cluster's remains: nothing after `down`."""
    processes = [f"process {pid}" for pid in sorted(cgroups.members(at.cgroup))]
    mounts = [f"mount {path}" for path in _mounts_below(at.state)]
    groups = [f"cgroup {root / at.cgroup}" for root in cgroups.hierarchies() if (root / at.cgroup).exists()]
    namespaces = [f"namespace {name}" for name in network.left(at)]
    files = [f"folder {at.state}"] if at.state.exists() else []
    return (*processes, *mounts, *groups, *namespaces, *files)


def node_of(at: Place, index: str) -> Node:
    """The node of this number in the running cluster."""
    if not index.isdigit() or not (at.state / f"n{index}").is_dir():
        raise ClusterError(f"node {index}: the running cluster has nodes 1 to {at.nodes}")
    return Node(place=at, index=int(index))
