"""The cluster's GPUs: which exist, which are free, which a plan may use. Pure."""

import datetime as dt
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from rightsizer.catalog import lookup
from rightsizer.domain.hardware import Cluster
from rightsizer.errors import RightsizerError
from rightsizer.values import immutable
from rightsizer_api.quantities import parse_time
from rightsizer_operator.values.names import GPU_RESOURCE, PRODUCT_LABEL
from rightsizer_operator.values.quantities import parse_quantity

__all__ = ["Inventory", "Node", "NodeRequirements", "Taint", "gpu_type", "tolerates"]

_MAX_CACHED = 1024  # results that one inventory caches
_EFFECTS = ("NoSchedule", "NoExecute")


@immutable
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@immutable
class Node:
    """One node. `gpus` is its allocatable count, which excludes unhealthy devices."""

    name: str
    product: str = ""
    gpus: int = 0
    ready: bool = True
    cordoned: bool = False
    not_ready_since: dt.datetime | None = None
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Node":
        """Parse a Node."""
        metadata, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
        labels = metadata.get("labels", {})
        ready: Mapping[str, str] = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
        since = parse_time(ready.get("lastTransitionTime"))
        healthy = ready.get("status") == "True"
        return cls(
            name=metadata["name"],
            product=labels.get(PRODUCT_LABEL, ""),
            gpus=parse_quantity(status.get("allocatable", {}).get(GPU_RESOURCE, 0)),
            ready=healthy,
            cordoned=spec.get("unschedulable", False),
            not_ready_since=None if healthy else since,
            taints=tuple(
                Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"])
                for t in spec.get("taints", ())
            ),
            labels=labels,
        )


@immutable
class NodeRequirements:
    """What a plan's pods require of nodes. `types` empty: any GPU type."""

    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    types: tuple[str, ...] = ()
    gpus_per_node: int | None = None


@immutable
class Inventory:
    """The cluster's GPUs.

    `bound` is the GPUs of each node that pods of other workloads hold. `claimed` is the GPUs of each type
    that Jobs of other plans request, whether or not their pods run. `cached` holds results that depend on
    `nodes` and `bound` only: thousands of plans query the same nodes, and only `claimed` differs.
    """

    nodes: tuple[Node, ...] = ()
    bound: Mapping[str, int] = field(default_factory=dict)
    claimed: Mapping[str, int] = field(default_factory=dict)
    cached: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def usable(self, requirements: NodeRequirements) -> tuple[Node, ...]:
        """Nodes that the plan's pods may run on now. Identical nodes are checked once."""
        accepted_by_kind: dict[object, bool] = {}
        usable = []
        for node in self.nodes:
            kind = (node.product, node.gpus, node.ready, node.cordoned, node.taints)
            accepted = accepted_by_kind.get(kind)
            if accepted is None:
                accepted = accepted_by_kind[kind] = _accepts(node, requirements)
            if accepted and (
                not requirements.selector or requirements.selector.items() <= {**node.labels}.items()
            ):
                usable.append(node)
        return tuple(usable)

    def products(self, kind: str) -> tuple[str, ...]:
        """The product labels of this GPU type."""
        products: set[str] = self._cache("products", lambda: {node.product for node in self.nodes})
        return tuple(sorted(product for product in products if gpu_type(product) == kind))

    def free(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """Free GPUs of a type, in whole pods."""
        key = ("free", repr(requirements), kind, gpus_per_pod)
        pods: int = self._cache(key, lambda: self._pods(requirements, kind, gpus_per_pod, self.bound))
        return max(0, pods - -(-self.claimed.get(kind, 0) // gpus_per_pod)) * gpus_per_pod

    def total(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """All GPUs of a type, in whole pods."""
        key = ("total", repr(requirements), kind, gpus_per_pod)
        pods: int = self._cache(key, lambda: self._pods(requirements, kind, gpus_per_pod, {}))
        return pods * gpus_per_pod

    def sizes(self, requirements: NodeRequirements) -> Mapping[str, int]:
        """GPUs of the largest node of each type, at most `gpus_per_node`."""
        sizes: Mapping[str, int] = self._cache(
            ("sizes", repr(requirements)), lambda: self._sizes(requirements)
        )
        return sizes

    def _sizes(self, requirements: NodeRequirements) -> Mapping[str, int]:
        sizes: dict[str, int] = {}
        for node in self.usable(requirements):
            kind = gpu_type(node.product)
            sizes[kind] = max(sizes.get(kind, 0), node.gpus)
        if requirements.gpus_per_node:
            return {kind: min(size, requirements.gpus_per_node) for kind, size in sizes.items()}
        return sizes

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

    def _pods(
        self, requirements: NodeRequirements, kind: str, gpus_per_pod: int, bound: Mapping[str, int]
    ) -> int:
        nodes = (node for node in self.usable(requirements) if gpu_type(node.product) == kind)
        return sum(max(0, node.gpus - bound.get(node.name, 0)) // gpus_per_pod for node in nodes)

    def _cache(self, key: object, compute: Callable[[], Any]) -> Any:
        if key not in self.cached:
            if len(self.cached) >= _MAX_CACHED:
                self.cached.clear()
            self.cached[key] = compute()
        return self.cached[key]


@functools.cache
def gpu_type(product: str) -> str:
    """The engine's GPU type of a product label; empty if it is unknown or a MIG slice."""
    try:
        return lookup.gpu(product).name if product else ""
    except RightsizerError:
        return ""


def _accepts(node: Node, requirements: NodeRequirements) -> bool:
    """Whether a node accepts the plan's pods, apart from the node selector."""
    kind = gpu_type(node.product)
    return bool(
        node.gpus
        and node.ready
        and not node.cordoned
        and all(tolerates(requirements.tolerations, taint) for taint in node.taints)
        and kind
        and (not requirements.types or kind in requirements.types)
    )


def tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Taint) -> bool:
    """Whether a pod with these tolerations may be scheduled despite the taint."""
    if taint.effect not in _EFFECTS:
        return True
    return any(
        toleration.get("effect", taint.effect) == taint.effect
        and toleration.get("key", taint.key) == taint.key
        and (toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.value)
        for toleration in tolerations
    )


def clusters(
    node_gpus: Mapping[str, int],
    max_gpus: Mapping[str, int],
    *,
    inter_gbps: float | None,
    price: float | None,
) -> tuple[Cluster, ...]:
    """The engine's clusters: one for each type that has GPUs."""
    return tuple(
        lookup.cluster(
            kind,
            gpus_per_node=size,
            inter_bytes_per_s=inter_gbps * 1e9 if inter_gbps else None,
            max_gpus=max_gpus[kind],
            price=price,
        )
        for kind, size in node_gpus.items()
        if max_gpus.get(kind, 0) > 0
    )
