"""Network namespaces: the control plane's with a bridge, one for each node. No way out of the machine."""

from pathlib import Path

from host import ask, run
from place import CONTROL_PLANE_ADDRESS, Node, Place, nodes

NAMESPACES = Path("/run/netns")
BRIDGE = "nodes"


def _inside(namespace: str, *argv: str) -> None:
    run("nsenter", f"--net={NAMESPACES / namespace}", *argv)


def _make_namespace(name: str) -> None:
    run("ip", "netns", "add", name)
    _inside(name, "ip", "link", "set", "lo", "up")
    _inside(name, "sysctl", "-qw", "net.ipv4.ip_forward=1")


def make(at: Place) -> None:
    """The control plane's namespace, the nodes' and the wires between them."""
    _make_namespace(at.control_plane)
    _inside(at.control_plane, "ip", "link", "add", BRIDGE, "type", "bridge")
    _inside(at.control_plane, "ip", "address", "add", f"{CONTROL_PLANE_ADDRESS}/24", "dev", BRIDGE)
    _inside(at.control_plane, "ip", "link", "set", BRIDGE, "up")
    for node in nodes(at):
        _connect(at, node)
    for node in nodes(at):
        for other in nodes(at):
            if other != node:
                _inside(node.namespace, "ip", "route", "add", other.pods, "via", other.address)


def _connect(at: Place, node: Node) -> None:
    plug = f"to-{node.name}"
    _make_namespace(node.namespace)
    ends = ("netns", at.control_plane, "type", "veth", "peer", "name", "eth0", "netns", node.namespace)
    run("ip", "link", "add", plug, *ends)
    _inside(at.control_plane, "ip", "link", "set", plug, "master", BRIDGE, "up")
    _inside(at.control_plane, "ip", "route", "add", node.pods, "via", node.address)
    _inside(node.namespace, "ip", "address", "add", f"{node.address}/24", "dev", "eth0")
    _inside(node.namespace, "ip", "link", "set", "eth0", "up")
    _inside(node.namespace, "ip", "route", "add", "default", "via", CONTROL_PLANE_ADDRESS)


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
