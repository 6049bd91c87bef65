"""Nodes, what pods require of them, and what keeps a pod off a node. Pure.

The checks are those of the scheduler that depend on the node alone: GPU type, readiness, cordons, taints,
node selector and required node affinity. They do not include affinity between pods or other resources.
"""

import datetime as dt
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from rightsizer_api.quantities import parse_time
from rightsizer_api.state import ConditionType
from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.values import immutable
from rightsizer_operator.values.requests import Amounts, amounts_of
from rightsizer_operator.values.vendors import VENDORS, gpus_in, slices_in

Object = Mapping[str, Any]

_READY = str(ConditionType.READY)  # a node has it too
_EFFECTS = ("NoSchedule", "NoExecute")


@immutable
class Taint:
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@immutable
class ClusterNode:
    """One node. `gpus` is its allocatable count, which excludes unhealthy devices; `allocatable` the rest.

    A node with MIG slices of the strategy `mixed` is one more of these for each profile: `resource` is what
    pods request of it; empty: its vendor's.
    """

    name: str
    product: str = ""
    gpus: int = 0
    resource: str = ""
    ready: bool = True
    cordoned: bool = False
    not_ready_since: dt.datetime | None = None
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Object) -> "ClusterNode":
        """Parse a Node."""
        metadata, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
        labels = metadata.get("labels", {})
        ready: Mapping[str, str] = next((c for c in status.get("conditions", ()) if c["type"] == _READY), {})
        since = parse_time(ready.get("lastTransitionTime"))
        healthy = ready.get("status") == "True"
        return cls(
            name=metadata["name"],
            product=next((labels[v.product_label] for v in VENDORS if v.product_label in labels), ""),
            gpus=gpus_in(status.get("allocatable", {})),
            ready=healthy,
            cordoned=spec.get("unschedulable", False),
            not_ready_since=None if healthy else since,
            taints=tuple(
                Taint(key=t["key"], value=t.get("value", ""), effect=t["effect"])
                for t in spec.get("taints", ())
            ),
            labels=labels,
            allocatable=amounts_of(status.get("allocatable")),
        )

    @classmethod
    def all_of(cls, raw: Object) -> "tuple[ClusterNode, ...]":
        """Parse a Node: its GPUs, and its MIG slices by profile."""
        node = cls.of(raw)
        slices = slices_in(raw.get("status", {}).get("allocatable", {}))
        return node, *(
            replace(node, product=node.labels.get(f"{name}.product", ""), gpus=count, resource=name)
            for name, count in sorted(slices.items())
        )

    @property
    def place(self) -> str:
        """The place of its GPUs: the node, with the resource of its slices."""
        return place_of(self.name, self.resource)


@immutable
class NodeRequirements:
    """The pods' requirements of nodes. `types` empty: any GPU type.

    `terms` are the alternatives of the required node affinity; None: no such affinity.
    """

    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Object] = ()
    terms: Sequence[Object] | None = None
    types: tuple[str, ...] = ()
    gpus_per_node: int | None = None

    @classmethod
    def of(cls, spec: Object) -> "NodeRequirements":
        """The requirements of a pod spec."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        return cls(
            selector=spec.get("nodeSelector") or {},
            tolerations=tuple(spec.get("tolerations") or ()),
            terms=required.get("nodeSelectorTerms"),
        )


def place_of(node: str, resource: str) -> str:
    """The place of a resource's GPUs of a node; for the vendor's resource it is the node."""
    return f"{node}/{resource}" if resource else node


def pod_slices(spec: Object) -> Counter[str]:
    """MIG slices that a pod spec requests, by resource."""
    slices: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        slices.update(slices_in((container.get("resources") or {}).get("limits") or {}))
    return slices


def pod_gpus(spec: Object) -> int:
    """GPUs that a pod spec requests; its init containers run before the others."""
    first = (_container_gpus(container) for container in spec.get("initContainers") or ())
    return max([sum(map(_container_gpus, spec.get("containers") or ())), *first])


def _container_gpus(container: Object) -> int:
    resources = container.get("resources") or {}
    kinds = (resources.get(kind) or {} for kind in ("limits", "requests"))
    return max(map(gpus_in, kinds))


@functools.cache
def gpu_type(product: str) -> str:
    """The engine's GPU type of a product label; empty if it is unknown."""
    try:
        return lookup.gpu(product).name if product else ""
    except RightsizerError:
        return ""


def obstacle(node: ClusterNode, requirements: NodeRequirements) -> str:
    """The obstacle to pods on a node even if all its GPUs are free, for messages; empty: nothing does."""
    return next(_obstacles(node, requirements), "")


def _obstacles(node: ClusterNode, requirements: NodeRequirements) -> Iterator[str]:
    kind = gpu_type(node.product)
    if not kind or (requirements.types and kind not in requirements.types):
        yield f"has {kind or node.product or 'GPUs without a product label'}"
    if not node.gpus:
        yield "has no allocatable GPUs"
    if not node.ready:
        yield "is not ready"
    if node.cordoned:
        yield "is cordoned"
    taints = (taint for taint in node.taints if not tolerates(requirements.tolerations, taint))
    yield from (f"has taint {taint}" for taint in taints)
    selected = requirements.selector.items()
    yield from (f"lacks label {key}={value}" for key, value in selected if node.labels.get(key) != value)
    terms = requirements.terms
    if terms is not None and not any(_matches(term, node) for term in terms):
        yield "does not match the node affinity"


def tolerates(tolerations: Sequence[Object], taint: Taint) -> bool:
    """Whether a pod with these tolerations may be scheduled despite the taint."""
    if taint.effect not in _EFFECTS:
        return True
    return any(
        (toleration.get("effect") or taint.effect) == taint.effect
        and (toleration.get("key") or taint.key) == taint.key
        and (toleration.get("operator") == "Exists" or (toleration.get("value") or "") == taint.value)
        for toleration in tolerations
    )


def _matches(term: Object, node: ClusterNode) -> bool:
    """Whether a node matches a term; a term without expressions matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    return bool(labels or fields) and (
        all(_holds(each, node.labels.get(each["key"])) for each in labels)
        and all(_holds(each, node.name) for each in fields)  # metadata.name is the only field
    )


def _holds(expression: Object, value: str | None) -> bool:
    """Whether a label's value meets an expression; an unknown operator counts as met."""
    values = expression.get("values") or ()
    verdict = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return verdict.get(expression["operator"], True)
