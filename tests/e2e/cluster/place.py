"""The places of a cluster: its name, its files, its addresses. Nothing here does anything."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
MODULES = Path(__file__).resolve().parent / "modules"

CONTROL_PLANE_ADDRESS = "10.200.0.1"
SERVICE_ADDRESSES = "10.202.0.0/16"
API_SERVICE_ADDRESS = "10.202.0.1"
POD_ADDRESSES = "10.201.0.0/16"
MOST_NODES = 200  # node i has the last byte 10 + i


class ClusterError(Exception):
    """A missing part or a failure, with its remedy, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One cluster of this machine; two with different names can run at once."""

    name: str
    nodes: int
    node_grace_s: int  # silence after which a node counts as gone
    gpus_per_node: int
    gpu_product: str
    gpu_memory_mib: int
    cache: Path  # built binaries
    state: Path  # everything of a running cluster; removed by `down`

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def log(self) -> Path:
        return self.state / "log"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def port_file(self) -> Path:
        return self.state / "relay.port"

    @property
    def control_plane(self) -> str:
        """The network namespace of etcd, the API server and the controllers."""
        return f"{self.name}-cp"

    @property
    def cgroup(self) -> str:
        """Holds every process of the cluster, and no other."""
        return f"{self.name}-cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: a network namespace, a folder of state, a cgroup."""

    place: Place
    index: int

    @property
    def name(self) -> str:
        return f"n{self.index}"

    @property
    def namespace(self) -> str:
        return f"{self.place.name}-{self.name}"

    @property
    def address(self) -> str:
        return f"10.200.0.{10 + self.index}"

    @property
    def pods(self) -> str:
        return f"10.201.{self.index}.0/24"

    @property
    def folder(self) -> Path:
        return self.place.state / self.name

    @property
    def socket(self) -> Path:
        return self.folder / "containerd.sock"

    @property
    def cgroup(self) -> str:
        return f"{self.place.cgroup}/{self.name}"


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """The cluster that the environment names; see docs/development-kubernetes.md for the variables."""
    name = environment.get("RIGHTSIZER_CLUSTER", "rightsizer")
    if not (name.isascii() and name.isalnum() and name.islower() and len(name) <= 12):
        raise ClusterError(f"RIGHTSIZER_CLUSTER={name}: 1 to 12 lower-case letters and digits, please")
    cache = environment.get("RIGHTSIZER_CACHE") or Path.home() / ".cache" / "rightsizer"
    return Place(
        name=name,
        nodes=_number(environment, "RIGHTSIZER_CLUSTER_NODES", default=3, most=MOST_NODES),
        node_grace_s=_number(environment, "RIGHTSIZER_CLUSTER_NODE_GRACE_S", default=20, most=3600),
        gpus_per_node=8,
        gpu_product="NVIDIA-H100-80GB-HBM3",
        gpu_memory_mib=81559,
        cache=Path(cache) / "k8s",
        state=Path("/var/lib/rightsizer-cluster") / name,
    )


def _number(environment: Mapping[str, str], name: str, *, default: int, most: int) -> int:
    value = environment.get(name, str(default))
    if not (value.isdecimal() and 1 <= int(value) <= most):
        raise ClusterError(f"{name}={value}: a number from 1 to {most}, please")
    return int(value)


def nodes(at: Place) -> tuple[Node, ...]:
    """The nodes that the cluster starts with."""
    return tuple(Node(place=at, index=i) for i in range(1, at.nodes + 1))
