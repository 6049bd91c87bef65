"""GPUs of a cluster as its nodes tell them: what there is, what is free, what a plan may use of it. Pure."""

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

_MOST_COUNTED = 1024  # answers that one inventory remembers
_EFFECTS = ("NoSchedule", "NoExecute")


@immutable
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@immutable
class Node:
    """One node. `gpus` is what it can give to pods (unhealthy devices are already out)."""

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
        """The node of an API object."""
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
    """What a plan's pods say about nodes: a selector, tolerations, GPU types (empty: any), GPUs of a pod."""

    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    types: tuple[str, ...] = ()
    gpus_per_node: int | None = None


@immutable
class Inventory:
    """The cluster's GPUs.

    `bound` is GPUs of each node that pods of others hold; `claimed` is GPUs of each type that Jobs of other
    plans ask for, whether their pods run already or not. `counted` remembers what was worked out of `nodes`
    and `bound`: thousands of plans ask the same of the same nodes, and only what is claimed differs.
    """

    nodes: tuple[Node, ...] = ()
    bound: Mapping[str, int] = field(default_factory=dict)
    claimed: Mapping[str, int] = field(default_factory=dict)
    counted: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def usable(self, requirements: NodeRequirements) -> tuple[Node, ...]:
        """Nodes that a plan's pods may run on now; nodes that are alike are judged once."""
        verdicts: dict[object, bool] = {}
        found = []
        for node in self.nodes:
            kind = (node.product, node.gpus, node.ready, node.cordoned, node.taints)
            takes = verdicts.get(kind)
            if takes is None:
                takes = verdicts[kind] = _takes(node, requirements)
            if takes and (
                not requirements.selector or requirements.selector.items() <= {**node.labels}.items()
            ):
                found.append(node)
        return tuple(found)

    def products(self, kind: str) -> tuple[str, ...]:
        """The product labels that mean this GPU type."""
        products: set[str] = self._once("products", lambda: {node.product for node in self.nodes})
        return tuple(sorted(product for product in products if gpu_type(product) == kind))

    def free(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """GPUs of a type that are free, counted in whole pods."""
        key = ("free", repr(requirements), kind, gpus_per_pod)
        pods: int = self._once(key, lambda: self._pods(requirements, kind, gpus_per_pod, self.bound))
        return max(0, pods - -(-self.claimed.get(kind, 0) // gpus_per_pod)) * gpus_per_pod

    def total(self, requirements: NodeRequirements, kind: str, gpus_per_pod: int) -> int:
        """GPUs of a type that there are, counted in whole pods."""
        key = ("total", repr(requirements), kind, gpus_per_pod)
        pods: int = self._once(key, lambda: self._pods(requirements, kind, gpus_per_pod, {}))
        return pods * gpus_per_pod

    def sizes(self, requirements: NodeRequirements) -> Mapping[str, int]:
        """GPUs of the largest node by type; a plan may ask for smaller pods."""
        found: Mapping[str, int] = self._once(
            ("sizes", repr(requirements)), lambda: self._sizes(requirements)
        )
        return found

    def _sizes(self, requirements: NodeRequirements) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for node in self.usable(requirements):
            kind = gpu_type(node.product)
            found[kind] = max(found.get(kind, 0), node.gpus)
        if requirements.gpus_per_node:
            return {kind: min(size, requirements.gpus_per_node) for kind, size in found.items()}
        return found

    def words(self) -> str:
        """What there is, in words, faults included."""
        parts: dict[str, int] = {}
        idle: dict[str, int] = {}
        for node in self.nodes:
            if not node.gpus and not node.product:
                continue
            name = gpu_type(node.product) or node.product or "GPUs without a product label"
            where = parts if node.ready and not node.cordoned else idle
            where[name] = where.get(name, 0) + node.gpus
        listed = [f"{count} x {name}" for name, count in sorted(parts.items())]
        listed += [f"{count} x {name} on nodes cordoned or not ready" for name, count in sorted(idle.items())]
        return ", ".join(listed) or "no GPU nodes"

    def dead(self, name: str, *, now: dt.datetime, after_s: float) -> bool:
        """Whether a node is gone, or has been silent for so long."""
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

    def _once(self, key: object, work: Callable[[], Any]) -> Any:
        if key not in self.counted:
            if len(self.counted) >= _MOST_COUNTED:
                self.counted.clear()
            self.counted[key] = work()
        return self.counted[key]


@functools.cache
def gpu_type(product: str) -> str:
    """The engine's name of a product label; empty where it knows none (or only slices of one)."""
    try:
        return lookup.gpu(product).name if product else ""
    except RightsizerError:
        return ""


def _takes(node: Node, requirements: NodeRequirements) -> bool:
    """Whether a node of this kind takes a plan's pods, its selector apart."""
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
        each.get("effect", taint.effect) == taint.effect
        and each.get("key", taint.key) == taint.key
        and (each.get("operator") == "Exists" or each.get("value", "") == taint.value)
        for each in tolerations
    )


def clusters(
    kinds: Mapping[str, int], most: Mapping[str, int], *, inter_gbps: float | None, price: float | None
) -> tuple[Cluster, ...]:
    """The engine's clusters: for each type with room, nodes of that size and that many GPUs."""
    return tuple(
        lookup.cluster(
            kind,
            gpus_per_node=size,
            inter_bytes_per_s=inter_gbps * 1e9 if inter_gbps else None,
            max_gpus=most[kind],
            price=price,
        )
        for kind, size in kinds.items()
        if most.get(kind, 0) > 0
    )
