"""CPU and memory: what pods request, and the equal share of a node that belongs to each of its GPUs. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.values.quantities import parse_amount

Object = Mapping[str, Any]
Amounts = Mapping[str, float]
"""Amounts by Kubernetes' name of the resource: cores of `cpu`, bytes of `memory`."""

RESOURCES = ("cpu", "memory")
STORE = {"cpu": "50m", "memory": "256Mi"}
"""What a plan's rendezvous pod requests."""


def amounts_of(listed: Object | None) -> dict[str, float]:
    """CPU and memory of a list of resources, such as a container's requests; absent ones are left out."""
    return {name: parse_amount(listed[name]) for name in RESOURCES if listed and name in listed}


def pod_requests(spec: Object) -> dict[str, float]:
    """CPU and memory that the scheduler counts for a pod.

    Init containers run before the others, sidecars among them beside these; what the pod itself requests
    replaces the sum.
    """
    containers, init = spec.get("containers") or (), spec.get("initContainers") or ()
    lasting = [*containers, *(each for each in init if each.get("restartPolicy") == "Always")]
    stated, overhead = _requests(spec), amounts_of(spec.get("overhead"))
    total = {}
    for name in RESOURCES:
        beside = sum(_requests(each).get(name, 0.0) for each in lasting)
        before = max((_requests(each).get(name, 0.0) for each in init), default=0.0)
        total[name] = stated.get(name, max(beside, before)) + overhead.get(name, 0.0)
    return total


def _requests(holder: Object) -> dict[str, float]:
    return amounts_of((holder.get("resources") or {}).get("requests"))


def least(*offers: Amounts) -> dict[str, float]:
    """The least of these offers of each resource; a resource that one of them lacks is left out."""
    names = [name for name in RESOURCES if all(name in offer for offer in offers)]
    return {name: min(offer[name] for offer in offers) for name in names}


@immutable
class Loads:
    """The pods' requests of nodes.

    `others` is the sum of the pods without GPUs, by node; `holders` are the pods with GPUs: how many, and
    what each requests. `known` is false before the pods have been listed. `cached` holds results for the
    present nodes.
    """

    others: Mapping[str, Amounts] = field(default_factory=dict)
    holders: Mapping[str, tuple[tuple[int, Amounts], ...]] = field(default_factory=dict)
    known: bool = False
    cached: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def per_gpu(self, node: str, allocatable: Amounts, gpus: int) -> dict[str, float]:
        """The CPU and memory for each GPU of a node, so that all of them can be used at once.

        The rest after the pods without GPUs, in equal parts. Pods that request more than their part are
        taken out with their GPUs first, so the parts of the other GPUs are free, whoever takes them.
        """
        if not self.known:
            return {}
        others = self.others.get(node, {})
        left = {name: amount - others.get(name, 0.0) for name, amount in allocatable.items()}
        return {name: self._part(node, name, amount, gpus) for name, amount in left.items()}

    def _part(self, node: str, name: str, left: float, gpus: int) -> float:
        """Infinite, no limit, if pods that request more than their part hold all GPUs."""
        holders = ((amounts.get(name, 0.0), count) for count, amounts in self.holders.get(node, ()))
        for amount, count in sorted(holders, key=lambda each: each[0] / each[1], reverse=True):
            if gpus > 0 and amount / count <= left / gpus:
                break
            left, gpus = left - amount, gpus - count
        return max(0.0, left / gpus) if gpus > 0 else math.inf


@immutable
class Allowance:
    """The CPU and memory that a namespace leaves to the pods of a plan.

    `left` is what its quotas leave of the resources that they limit, `left_gpus` of GPUs (None: no limit).
    `own_defaults` are the resources that a LimitRange speaks of: pods get their requests of it.
    """

    left: Amounts = field(default_factory=dict)
    left_gpus: int | None = None
    own_defaults: frozenset[str] = frozenset()

    def per_gpu(self, gpus: int) -> dict[str, float]:
        """The most that a plan of so many GPUs may request for each.

        Its part of what quotas leave, by GPUs; half of it where they do not limit GPUs, so that other plans
        can be launched too.
        """
        most = dict.fromkeys(RESOURCES, math.inf)
        for name, left in self.left.items():
            most[name] = left / self.left_gpus if self.left_gpus else 0.5 * left / gpus
        return {name: amount for name, amount in most.items() if name not in self.own_defaults}


def allowance(
    quotas: Iterable[Object], limit_ranges: Iterable[Object], *, left_gpus: int | None
) -> Allowance:
    """Parse a namespace's ResourceQuotas and LimitRanges. Quotas count the rendezvous pod too."""
    left, store = dict[str, float](), amounts_of(STORE)
    for quota in quotas:
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        for name in RESOURCES:
            for key in {name, f"requests.{name}"} & hard.keys():
                free = parse_amount(hard[key]) - parse_amount(used.get(key, 0)) - store[name]
                left[name] = max(0.0, min(free, left.get(name, free)))
    spoken = {
        name
        for each in limit_ranges
        for limit in (each.get("spec") or {}).get("limits") or ()
        if limit.get("type") in ("Container", "Pod")
        for values in limit.values()
        if isinstance(values, Mapping)
        for name in values
    }
    return Allowance(left=left, left_gpus=left_gpus, own_defaults=frozenset(spoken & set(RESOURCES)))
