"""Network namespaces: the control plane's with a bridge, one for each node. No way out of the machine."""

from pathlib import Path

from host import ask, run
from place import CONTROL_PLANE_ADDRESS, Node, Place, nodes

NAMESPACES = Path("/run/netns")
BRIDGE = "nodes"


def make(at: Place) -> None:
    """The control plane's namespace, the nodes' and the wires between them."""
    bridge = (
        f"link add {BRIDGE} type bridge",
        f"address add {CONTROL_PLANE_ADDRESS}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    )
    _make_namespace(at.control_plane, *bridge)
    for node in nodes(at):
        _make_namespace(node.namespace)
        _connect(at, node)


def _make_namespace(name: str, *commands: str) -> None:
    run("ip", "netns", "add", name)
    run("nsenter", f"--net={NAMESPACES / name}", "sysctl", "-qw", "net.ipv4.ip_forward=1")
    _inside(name, "link set lo up", *commands)


def _inside(namespace: str, *commands: str) -> None:
    run("ip", "-netns", namespace, "-batch", "-", text="\n".join(commands) + "\n")


def _connect(at: Place, node: Node) -> None:
    plug = f"to-{node.name}"
    _inside(
        at.control_plane,
        f"link add {plug} type veth peer name eth0 netns {node.namespace}",
        f"link set {plug} master {BRIDGE} up",
        f"route add {node.pods} via {node.address}",
    )
    others = (other for other in nodes(at) if other != node)
    _inside(
        node.namespace,
        f"address add {node.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {CONTROL_PLANE_ADDRESS}",
        *(f"route add {other.pods} via {other.address}" for other in others),
    )


def set_link(node: Node, state: str) -> None:
    """Pull the node's plug ("down") or put it in again ("up"); what runs there goes on, unheard."""
    _inside(node.place.control_plane, f"link set to-{node.name} {state}")


def left(at: Place) -> tuple[str, ...]:
    """The namespaces of this cluster that exist."""
    there = NAMESPACES.iterdir() if NAMESPACES.is_dir() else ()
    return tuple(p.name for p in there if p.name == at.control_plane or _is_node(at, p.name))


def _is_node(at: Place, namespace: str) -> bool:
    prefix, dash, node = namespace.partition("-n")
    return prefix == at.name and dash == "-n" and node.isdigit()


def remove(at: Place) -> None:
    """Delete them; interfaces, routes and iptables rules go with them."""
    for namespace in left(at):
        ask("ip", "netns", "delete", namespace)
