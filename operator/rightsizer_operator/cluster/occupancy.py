"""The GPUs of each node that pods hold, and those that unscheduled pods of plans will take."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.values.metadata import Key, controller_uid
from rightsizer_operator.values.nodes import place_of, pod_gpus, pod_slices
from rightsizer_operator.values.pods import PodPhase, node_of

Object = Mapping[str, Any]
Owner = tuple[str, str]
"""Namespace and uid of a controller: an owner reference never crosses namespaces. The uid is never empty."""


@immutable
class BoundPod:
    """A pod that holds GPUs of a node; `node` names the place, which MIG slices have to themselves.

    `owner` is None without a controller.
    """

    node: str
    owner: Owner | None
    gpus: int


def owner_of(pod: Object) -> Owner | None:
    """The controller of a pod; None without one."""
    uid = controller_uid(pod)
    return (pod["metadata"]["namespace"], uid) if uid else None


def bound_pods(pods: Iterable[Object]) -> tuple[BoundPod, ...]:
    """The unfinished pods among these that hold GPUs of a node."""
    return tuple(
        BoundPod(node=place_of(node, resource), owner=owner_of(pod), gpus=gpus)
        for pod in pods
        if (node := node_of(pod))
        and pod.get("status", {}).get("phase") not in {PodPhase.SUCCEEDED, PodPhase.FAILED}
        for resource, gpus in {"": pod_gpus(pod["spec"]), **pod_slices(pod["spec"])}.items()
        if gpus
    )


class Occupancy:
    """GPUs by node: those of bound pods, and those that each plan is expected to take."""

    def __init__(self) -> None:
        self._expected: defaultdict[Key, Counter[str]] = defaultdict(Counter)
        self.replace(())

    @property
    def held(self) -> Mapping[str, int]:
        """GPUs that are held or expected to be taken, now."""
        return self._held

    def replace(self, pods: Iterable[BoundPod]) -> Mapping[Key, Mapping[str, int]]:
        """Store the pods of a new list and drop what plans are expected to take, which it returns."""
        expected = self._expected
        self._held: Counter[str] = Counter()
        self._by_owner: defaultdict[Owner, Counter[str]] = defaultdict(Counter)
        self._pods: Counter[Owner] = Counter()
        self._expected = defaultdict(Counter)
        for pod in pods:
            self._held[pod.node] += pod.gpus
            if pod.owner is not None:
                self._by_owner[pod.owner][pod.node] += pod.gpus
                self._pods[pod.owner] += 1
        return expected

    def bound(self, owner: Owner) -> int:
        """The number of pods of an owner that hold GPUs."""
        return self._pods[owner]

    def expect(self, key: Key, gpus: Mapping[str, int]) -> None:
        """A plan is expected to take these GPUs, besides those it was expected to take."""
        self._expected[key].update(gpus)
        self._held.update(gpus)

    def forget(self, key: Key) -> Mapping[str, int]:
        """Expect a plan to take nothing; the GPUs expected before."""
        expected: Mapping[str, int] = self._expected.pop(key, {})
        self._held.subtract(expected)
        return expected

    def held_without(self, key: Key, owners: Iterable[Owner]) -> dict[str, int]:
        """GPUs that are not this plan's, whose pods have these owners."""
        held = Counter(self._held)
        held.subtract(self._expected.get(key, {}))
        for owner in owners:
            held.subtract(self._by_owner.get(owner, {}))
        return dict(held)
