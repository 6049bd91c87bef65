"""The cluster's GPUs: which exist, which are free, where pods can be placed. Pure."""

import datetime as dt
import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from rightsizer_api.stated_hardware import StatedHardware
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.values import immutable
from rightsizer_operator.values.devices import Devices
from rightsizer_operator.values.nodes import ClusterNode, NodeRequirements, gpu_type, obstacle
from rightsizer_operator.values.requests import Amounts, Loads, least

_MAX_CACHED = 1024  # results that one inventory caches
_MAX_NAMED = 4  # nodes that a message names


@immutable
class Inventory:
    """The cluster's GPUs.

    `held` is the GPUs of each place that other pods hold, or will hold once they are scheduled. `cached`
    holds results that depend on `nodes` only: thousands of plans query the same nodes, only `held` differs.
    `devices` are those that pods claim; None: pods request the resource of a device plugin. `loads` is what
    pods request of the nodes' CPU and memory.
    """

    nodes: tuple[ClusterNode, ...] = ()
    held: Mapping[str, int] = field(default_factory=dict)
    devices: Devices | None = None
    loads: Loads = field(default_factory=Loads)
    cached: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def usable(self, requirements: NodeRequirements) -> tuple[ClusterNode, ...]:
        """Nodes that pods may run on now, if their GPUs are free."""
        usable: tuple[ClusterNode, ...] = self._cache(
            ("usable", repr(requirements)),
            lambda: tuple(node for node, why in self._obstacles(requirements) if not why),
        )
        return usable

    def products(self, kind: str) -> tuple[str, ...]:
        """The product labels of this GPU type."""
        products: set[str] = self._cache("products", lambda: {node.product for node in self.nodes})
        return tuple(sorted(product for product in products if gpu_type(product) == kind))

    def resource(self, kind: str) -> str:
        """The resource of MIG slices that pods on this type request; empty: the vendor's."""
        found: str = self._cache(
            ("resource", kind),
            lambda: max((node.resource for node in self.nodes if gpu_type(node.product) == kind), default=""),
        )
        return found

    def free(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """Free GPUs of a type, in whole pods."""
        nodes = self._of_type(requirements, kind)
        return sum(self._left(node) // gpus_per_pod for node in nodes) * gpus_per_pod

    def room(self, requirements: NodeRequirements, kind: str, node_gpus: int) -> int:
        """The most GPUs of a type that a job can be placed on: in whole nodes, else in a part of one."""
        whole = self.free(requirements, kind, node_gpus)
        return whole or max(map(self._left, self._of_type(requirements, kind)), default=0)

    def total(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """All GPUs of a type, free or not, in whole pods."""
        total: int = self._cache(
            ("total", repr(requirements), kind, gpus_per_pod),
            lambda: sum(node.gpus // gpus_per_pod for node in self._of_type(requirements, kind)),
        )
        return total * gpus_per_pod

    def share(self, requirements: NodeRequirements, gpus_per_pod: int) -> Amounts:
        """CPU and memory that belong to a pod's GPUs, on each node that it may be placed on.

        Empty where a node or the pods on it are not known.
        """
        cached, key = self.loads.cached, (repr(requirements), gpus_per_pod)
        if key not in cached:
            cached[key] = self._share(requirements, gpus_per_pod)
        share: Amounts = cached[key]
        return share

    def _share(self, requirements: NodeRequirements, gpus_per_pod: int) -> Amounts:
        gpus: Counter[str] = Counter()
        for node in self.nodes:
            gpus[node.name] += node.gpus
        nodes = (node for node in self.usable(requirements) if node.gpus >= gpus_per_pod)
        parts = [self.loads.per_gpu(node.name, node.allocatable, gpus[node.name]) for node in nodes]
        part = least(*parts) if parts else {}
        return {name: gpus_per_pod * amount for name, amount in part.items() if math.isfinite(amount)}

    def placed(self, requirements: NodeRequirements, gpus_per_pod: int, pods: int) -> Counter[str]:
        """GPUs of each node that these pods would take, the emptiest nodes first as the scheduler does.

        Pods for which no node has room take nothing.
        """
        rooms = [(-self._left(node), node.place) for node in self.usable(requirements)]
        heapq.heapify(rooms)
        taken: Counter[str] = Counter()
        while rooms and pods > 0 and gpus_per_pod and -rooms[0][0] >= gpus_per_pod:
            room, name = rooms[0]
            heapq.heapreplace(rooms, (room + gpus_per_pod, name))
            taken[name] += gpus_per_pod
            pods -= 1
        return taken

    def sizes(self, requirements: NodeRequirements) -> Mapping[str, int]:
        """GPUs of the largest node of each type, at most `gpus_per_node`; MIG slices only if named."""
        sizes: dict[str, int] = self._cache(("sizes", repr(requirements)), lambda: self._sizes(requirements))
        return sizes

    def _sizes(self, requirements: NodeRequirements) -> dict[str, int]:
        most, sizes = requirements.gpus_per_node, {}
        for kind, nodes in self._by_type(requirements).items():
            if requirements.types or not lookup.gpu(kind).is_slice:
                largest = max(node.gpus for node in nodes)
                sizes[kind] = min(largest, most) if most else largest
        return sizes

    def shortfall(self, requirements: NodeRequirements, gpus_per_pod: int = 0) -> str:
        """The nodes' lack for pods of this size, for messages: a few nodes by name, the emptiest first.

        Nodes with other GPU types are left out. Without `gpus_per_pod` only what keeps all pods off counts.
        """
        lacks = []
        for node, why in self._obstacles(requirements):
            kind, left = gpu_type(node.product), self._left(node)
            if not kind or (requirements.types and kind not in requirements.types):
                continue
            if why:
                lacks.append((1, -left, f"node {node.name} {why}"))
            elif gpus_per_pod and left < node.gpus:
                rank = 0 if left < gpus_per_pod else 2
                lacks.append((rank, -left, f"node {node.name} has {left} of {node.gpus} GPUs free"))
        named = [text for _, _, text in heapq.nsmallest(_MAX_NAMED, lacks)]
        more = len(lacks) - len(named)
        return "; ".join([*named, f"{more} more nodes lack something"] if more else named)

    def summary(self) -> str:
        """The GPUs by type, with those on cordoned or not-ready nodes, for messages."""
        usable: dict[str, int] = {}
        unusable: dict[str, int] = {}
        for node in self.nodes:
            if not node.gpus and not node.product:
                continue
            name = gpu_type(node.product) or node.product or "GPUs without a product label"
            counts = usable if node.ready and not node.cordoned else unusable
            counts[name] = counts.get(name, 0) + node.gpus
        listed = [f"{count} x {name}" for name, count in sorted(usable.items())]
        listed += [
            f"{count} x {name} on cordoned or not-ready nodes" for name, count in sorted(unusable.items())
        ]
        return ", ".join(listed) or "no GPU nodes"

    def is_dead(self, name: str, *, now: dt.datetime, after_s: float) -> bool:
        """Whether a node is deleted, or has not been ready for `after_s`."""
        node = next((n for n in self.nodes if n.name == name), None)
        if node is None:
            return True
        since = node.not_ready_since
        return since is not None and (now - since).total_seconds() >= after_s

    def _obstacles(self, requirements: NodeRequirements) -> tuple[tuple[ClusterNode, str], ...]:
        """Each node, and what keeps the pods off it."""
        found: tuple[tuple[ClusterNode, str], ...] = self._cache(
            ("obstacles", repr(requirements)),
            lambda: tuple((node, obstacle(node, requirements)) for node in self.nodes),
        )
        return found

    def _left(self, node: ClusterNode) -> int:
        return max(0, node.gpus - self.held.get(node.place, 0))

    def _of_type(self, requirements: NodeRequirements, kind: str) -> tuple[ClusterNode, ...]:
        return self._by_type(requirements).get(kind, ())

    def _by_type(self, requirements: NodeRequirements) -> Mapping[str, tuple[ClusterNode, ...]]:
        """The usable nodes of each GPU type."""
        found: Mapping[str, tuple[ClusterNode, ...]] = self._cache(
            ("by type", repr(requirements)), lambda: _grouped(self.usable(requirements))
        )
        return found

    def _cache(self, key: object, compute: Callable[[], Any]) -> Any:
        if key not in self.cached:
            if len(self.cached) >= _MAX_CACHED:
                self.cached.clear()
            self.cached[key] = compute()
        return self.cached[key]


def _grouped(nodes: Iterable[ClusterNode]) -> Mapping[str, tuple[ClusterNode, ...]]:
    groups: defaultdict[str, list[ClusterNode]] = defaultdict(list)
    for node in nodes:
        groups[gpu_type(node.product)].append(node)
    return {kind: tuple(of_kind) for kind, of_kind in groups.items()}


def clusters(
    node_gpus: Mapping[str, int],
    max_gpus: Mapping[str, int],
    *,
    stated: StatedHardware,
) -> tuple[Cluster, ...]:
    """The engine's clusters: one for each type that has GPUs."""
    return tuple(
        stated.cluster(kind, size, max_gpus=max_gpus[kind])
        for kind, size in node_gpus.items()
        if max_gpus.get(kind, 0) > 0
    )
