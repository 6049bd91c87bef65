"""A whole Kubernetes on this machine, without docker; see docs/development-kubernetes.md.

up               start it, or find it running; prints `export KUBECONFIG=...`
down             stop it; no process, namespace, mount or cgroup is left
status           what runs
env              prints `export KUBECONFIG=...` of the running cluster
build [NAME...]  build binaries: all graphs of modules/, or these
tool NAME        print the path of helm, kueue, kwok, kubectl (building it if need be)
load             import the images again, after a change to examples/
archive FILE     import an archive's images by the names in it
image FILE REPO [N...]  import an image as REPO@DIGEST to nodes N, or to all; pods of the runtime class
                 image-only run it as it is
node-kill N      kill node N: kubelet, containerd and containers at once
node-start N     start it again
node-cut N       cut node N off the network: no packet gets in or out, not even a FIN
node-join N      connect it again
gpus-broken N L  let the pretended GPUs L (0,3; - for none) of node N be unhealthy
kill NAME        kill one daemon (see status), as a crash would
start NAME       start it again
install NAME     install a controller by its chart: kueue, jobset, trainer
uninstall NAME   take it away again
"""

import sys
from collections.abc import Callable
from pathlib import Path

import build
import controllers
import daemons
import images
import kubectl
import lifecycle
import network
import node
import preflight
import toolchain
from place import ClusterError, Place, nodes, place


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _up(at: Place) -> None:
    preflight.check()
    lifecycle.up(at)
    _env(at)


def _env(at: Place) -> None:
    if not at.kubeconfig.exists():
        raise ClusterError("no cluster runs: `scripts/ci.py up kubernetes` starts one")
    _print(f"export KUBECONFIG={at.kubeconfig}")


def _status(at: Place) -> None:
    for name in daemons.names(at):
        pid = daemons.pid(at, name)
        _print(f"{name:20} {'dead' if pid is None else f'pid {pid}'}")
    for each in kubectl.nodes(at) if kubectl.ready(at) else ():
        state = "ready" if kubectl.node_is_ready(each) else "not ready"
        _print(f"{each['metadata']['name']:20} {state}, {kubectl.allocatable_gpus(each)} pretended GPUs")
    if not daemons.names(at):
        _print("no cluster runs")


def _build(at: Place, *names: str) -> None:
    for name in names or tuple(build.GRAPHS):
        if name not in build.GRAPHS:
            raise ClusterError(f"{name}: the module graphs are {', '.join(build.GRAPHS)}")
        _print(str(build.built(at, name)))


def _tool(at: Place, name: str) -> None:
    if name == "kubectl":
        _print(str(toolchain.kubectl(at)))
        return
    graphs = [graph for graph in build.GRAPHS.values() if name in graph.commands]
    if not graphs:
        raise ClusterError(f"{name}: no such tool")
    _print(str(build.built(at, graphs[0].name) / name))


def _load(at: Place) -> None:
    archive = at.state / "images.tar"
    images.write_archive(archive, images.images(build.binaries(at)["pause"]))
    for each in nodes(at):
        node.import_images(each, archive)


def _archive(at: Place, archive: str) -> None:
    for each in nodes(at):
        node.import_images(each, Path(archive))


def _image(at: Place, archive: str, repository: str, *indexes: str) -> None:
    for each in [lifecycle.node_of(at, index) for index in indexes] or nodes(at):
        node.import_by_digest(each, Path(archive), repository)


def _node_kill(at: Place, index: str) -> None:
    node.kill(lifecycle.node_of(at, index))


def _node_start(at: Place, index: str) -> None:
    node.restart(lifecycle.node_of(at, index))


def _node_cut(at: Place, index: str) -> None:
    network.set_link(lifecycle.node_of(at, index), "down")


def _node_join(at: Place, index: str) -> None:
    network.set_link(lifecycle.node_of(at, index), "up")


def _gpus_broken(at: Place, index: str, gpus: str) -> None:
    node.break_gpus(lifecycle.node_of(at, index), gpus.removesuffix("-").split(","))


def _known(at: Place, name: str) -> str:
    if name not in daemons.names(at):
        raise ClusterError(f"{name}: no such daemon; `status` lists them")
    return name


def _kill(at: Place, name: str) -> None:
    daemons.stop(at, _known(at, name))


def _start(at: Place, name: str) -> None:
    daemons.restart(at, _known(at, name))


COMMANDS: dict[str, Callable[..., None]] = {
    "up": _up,
    "down": lifecycle.down,
    "status": _status,
    "env": _env,
    "build": _build,
    "tool": _tool,
    "load": _load,
    "archive": _archive,
    "image": _image,
    "node-kill": _node_kill,
    "node-start": _node_start,
    "node-cut": _node_cut,
    "node-join": _node_join,
    "gpus-broken": _gpus_broken,
    "kill": _kill,
    "start": _start,
    "install": controllers.install,
    "uninstall": controllers.uninstall,
}
ARGUMENTS = {  # the others take none
    "tool": 1,
    "archive": 1,
    "image": 2,
    "node-kill": 1,
    "node-start": 1,
    "node-cut": 1,
    "node-join": 1,
    "gpus-broken": 2,
    "kill": 1,
    "start": 1,
    "install": 1,
    "uninstall": 1,
}


def main(arguments: list[str]) -> int:
    """Exit codes: 0 done, 1 could not (one line says why), 2 not a command."""
    name, *rest = arguments or ["help"]
    wanted = ARGUMENTS.get(name, 0)
    fits = len(rest) == wanted or (name in {"build", "image"} and len(rest) > wanted)
    if name not in COMMANDS or not fits:
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
