"""GPUs that pods claim by dynamic resource allocation (resource.k8s.io): those of one DeviceClass. Pure.

Drivers list the devices of a node in ResourceSlices; a DeviceClass selects among them; a pod's ResourceClaim
holds those that the scheduler allocates to it. https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.values.nodes import ClusterNode
from rightsizer_operator.values.vendors import NVIDIA

Object = Mapping[str, Any]
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2")
"""Versions of one schema, the preferred one first: Kubernetes 1.34 and 1.33."""
_PRODUCT, _PROFILE = "productName", "profile"
"""The attributes of NVIDIA's and AMD's drivers that name a GPU, and the profile of a MIG slice."""
_TEXT = r"""(?:"(?P<{0}2>[^"\\]*)"|'(?P<{0}1>[^'\\]*)')"""
_CONDITION = re.compile(
    rf"device\.(?:driver|attributes\[{_TEXT.format('domain')}\]\.(?P<name>\w+))\s*==\s*{_TEXT.format('value')}"
)
_BLOCKING = ("NoSchedule", "NoExecute")


@immutable
class DeviceClass:
    """The selection of a DeviceClass: a driver and texts of attributes, as (domain, name) -> text.

    `readable` is false if a selector is more than a conjunction of such conditions: it selects nothing then.
    """

    name: str
    driver: str = ""
    attributes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    readable: bool = True

    @classmethod
    def of(cls, raw: Object) -> "DeviceClass":
        """Parse a DeviceClass, whose selectors are CEL expressions."""
        made = cls(name=raw["metadata"]["name"])
        for each in raw.get("spec", {}).get("selectors") or ():
            for condition in each.get("cel", {}).get("expression", "").split("&&"):
                found = _CONDITION.fullmatch(condition.strip())
                if found is None:
                    return replace(made, readable=False)
                text = found["value2"] if found["value2"] is not None else found["value1"]
                if not found["name"]:
                    made = replace(made, driver=text)
                    continue
                key = (found["domain2"] or found["domain1"] or "", found["name"])
                made = replace(made, attributes={**made.attributes, key: text})
        return made

    def selects(self, driver: str, attributes: Mapping[tuple[str, str], str]) -> bool:
        """Whether a device is of this class."""
        return (
            self.readable
            and self.driver in ("", driver)
            and all(attributes.get(key) == text for key, text in self.attributes.items())
        )


@immutable
class Devices:
    """The devices of a class, and the pods that hold some or wait for some.

    `api` is the group and version. `nodes` has the product and the number of each node's devices; of a node
    with several products, the one of most devices. `pods` are GPUs by the pod's uid.
    """

    device_class: str
    api: str = f"{GROUP}/{VERSIONS[0]}"
    nodes: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    pods: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, stated: DeviceClass, slices: Iterable[Object], claims: Iterable[Object], *, api: str
    ) -> "Devices":
        """Parse ResourceSlices and ResourceClaims."""
        found = {identity: place for identity, *place in _devices(stated, slices)}
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for node, product in found.values():
            counts[node][product] += 1
        nodes = {node: products.most_common(1)[0] for node, products in counts.items()}
        pods: Counter[str] = Counter()
        for claim in claims:
            for uid in _consumers(claim):
                pods[uid] += _gpus(claim, stated.name, found)
        return cls(device_class=stated.name, api=api, nodes=nodes, pods=pods)

    def on(self, node: ClusterNode) -> ClusterNode:
        """The node with its devices of the class instead of the resources of a device plugin."""
        if node.resource:
            return replace(node, gpus=0)
        product, gpus = self.nodes.get(node.name, ("", 0))
        return replace(node, product=product, gpus=gpus)

    def held_by(self, pod: Object) -> Object:
        """The pod, with the GPUs of its claims as if it requested them as a resource."""
        gpus = self.pods.get(pod["metadata"].get("uid", ""), 0)
        if not gpus:
            return pod
        container = {"resources": {"limits": {NVIDIA.resource: gpus}}}
        return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"].get("containers", ()), container]}}


def _devices(stated: DeviceClass, slices: Iterable[Object]) -> Iterator[tuple[DeviceId, str, str]]:
    """The devices of the class on nodes, with node and product, without those whose taint keeps pods off."""
    for spec in _complete(slices):
        for raw in spec.get("devices") or ():
            device = raw.get("basic") or raw  # v1beta1, which kubectl may answer with
            attributes = _attributes(spec["driver"], device)
            tainted = any(taint.get("effect") in _BLOCKING for taint in device.get("taints") or ())
            if spec.get("nodeName") and not tainted and stated.selects(spec["driver"], attributes):
                identity = (spec["driver"], spec["pool"]["name"], raw["name"])
                yield identity, spec["nodeName"], _product(spec["driver"], attributes)


def _complete(slices: Iterable[Object]) -> Iterator[Object]:
    """The slices of each pool's newest generation, once all are there, as the scheduler counts them."""
    pools: defaultdict[tuple[str, str], list[Object]] = defaultdict(list)
    for each in slices:
        pools[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each["spec"])
    for specs in pools.values():
        newest = max(spec["pool"].get("generation", 0) for spec in specs)
        current = [spec for spec in specs if spec["pool"].get("generation", 0) == newest]
        if len(current) >= current[0]["pool"].get("resourceSliceCount", 1):
            yield from current


def _attributes(driver: str, device: Object) -> dict[tuple[str, str], str]:
    """Texts of a device by domain and name; the driver's domain is implied."""
    found = {}
    for name, value in (device.get("attributes") or {}).items():
        domain, _, short = name.rpartition("/")
        if "string" in value:
            found[domain or driver, short] = value["string"]
    return found


def _product(driver: str, attributes: Mapping[tuple[str, str], str]) -> str:
    """The product as GPU feature discovery would label it."""
    product, profile = (attributes.get((driver, name), "") for name in (_PRODUCT, _PROFILE))
    return f"{product}-MIG-{profile}" if product and profile else product


def _consumers(claim: Object) -> set[str]:
    """The uids of the pods of a claim: its owner, else those that it is reserved for."""
    owners = {o["uid"] for o in claim["metadata"].get("ownerReferences", ()) if o["kind"] == "Pod"}
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    return owners or {each["uid"] for each in reserved if each.get("resource") == "pods"}


def _gpus(claim: Object, name: str, devices: Mapping[DeviceId, Any]) -> int:
    """Devices of the class that a claim holds; if it holds none yet, its requested ones."""
    allocation = (claim.get("status") or {}).get("allocation")
    if allocation is not None:
        results = (allocation.get("devices") or {}).get("results") or ()
        held = ((r["driver"], r["pool"], r["device"]) for r in results if not r.get("adminAccess"))
        return sum(identity in devices for identity in held)
    requests = (claim["spec"].get("devices") or {}).get("requests") or ()
    exact = (request.get("exactly") or {} for request in requests)
    return sum(each.get("count", 1) for each in exact if each.get("deviceClassName") == name)


def selector(products: Iterable[str]) -> str:
    """A CEL expression for devices of these products."""
    own = "device.attributes[device.driver]"
    alternatives = []
    for product in products:
        name, _, profile = product.partition("-MIG-")
        sliced = f'"{_PROFILE}" in {own}'
        kind = f"{sliced} && {own}.{_PROFILE} == {json.dumps(profile)}" if profile else f"!({sliced})"
        alternatives.append(f"({own}.{_PRODUCT} == {json.dumps(name)} && {kind})")
    return f'"{_PRODUCT}" in {own} && ({" || ".join(alternatives)})'


def quota_name(device_class: str) -> str:
    """A ResourceQuota's name of the devices of a class."""
    return f"{device_class}.deviceclass.{GROUP}/devices"
