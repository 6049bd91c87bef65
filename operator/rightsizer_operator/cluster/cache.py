"""The watch cache: plans, their Jobs and other children, and nodes."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rightsizer_engine.values import immutable
from rightsizer_operator.cluster.occupancy import BoundPod, Occupancy, Owner
from rightsizer_operator.cluster.relist import Listing
from rightsizer_operator.values.attempt import AttemptRecord
from rightsizer_operator.values.devices import Devices
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.metadata import Key, key_of, plan_key, version_of, without_managed_fields
from rightsizer_operator.values.names import rendezvous_name
from rightsizer_operator.values.nodes import ClusterNode, obstacle
from rightsizer_operator.values.quantities import parse_quantity
from rightsizer_operator.values.requests import Loads
from rightsizer_operator.values.snapshot import AttemptJob, Rendezvous

Object = Mapping[str, Any]
_SHARED_LEVELS = 32
"""Texts of a plan share memory down to this depth: a tenant may nest a template hundreds of levels deep."""


@immutable
class CacheKeys:
    """The cached objects when a relist began: only those can be missing from it because they were deleted."""

    plans: frozenset[Key]
    jobs: Mapping[tuple[Key, str], int]
    children: frozenset[tuple[Key, str]]
    nodes: frozenset[str]


class Cache:
    """The newest version of each object by resourceVersion; older versions that arrive late are dropped.

    `wanted` is the GPU types that other workloads wait for.
    """

    def __init__(self) -> None:
        self.plans: dict[Key, dict[str, Any]] = {}
        self.jobs: defaultdict[Key, dict[str, AttemptJob]] = defaultdict(dict)
        self.children: defaultdict[Key, set[str]] = defaultdict(set)
        self.nodes: dict[str, ClusterNode] = {}
        self._rendezvous: dict[Key, Rendezvous] = {}
        self.wanted: frozenset[str] = frozenset()
        self.devices: Devices | None = None
        self._occupancy, self._loads = Occupancy(), Loads()
        self._all_nodes: Inventory | None = None
        self._deleted_uids: set[str] = set()

    def set_pods(self, pods: Iterable[BoundPod], loads: Loads | None = None) -> None:
        """Store a new list of the pods that hold GPUs, and what all pods request of nodes with GPUs."""
        self._loads = loads or Loads()
        expected = self._occupancy.replace(pods)
        for key in tuple(self.jobs):
            self._update_claims(key, before=expected.get(key))

    def set_devices(self, devices: Devices) -> None:
        """Store the devices that pods claim: they are the nodes' GPUs."""
        self.devices, self._all_nodes = devices, None
        for node in tuple(self.nodes.values()):
            self._store_node(node)

    def set_plan(self, raw: Object) -> bool:
        """Store a plan; whether it is newer than the cached one."""
        key = key_of(raw)
        cached = self.plans.get(key)
        if cached is not None and version_of(cached) >= version_of(raw):
            return False
        self.plans[key] = _with_shared_text(without_managed_fields(raw))
        if cached is None or _claiming(cached) != _claiming(raw):
            self._update_claims(key)
        return True

    def newest(self, raw: Object) -> Object:
        """The cached plan if it is not older than this one, which then need not be kept; else this one."""
        cached = self.plans.get(key_of(raw))
        return cached if cached and version_of(cached) >= version_of(raw) else raw

    def remove_plan(self, key: Key) -> None:
        """Remove a deleted plan and its children."""
        plan = self.plans.pop(key, None)
        self._deleted_uids |= {plan["metadata"]["uid"]} if plan else set()
        self.jobs.pop(key, None)
        self.children.pop(key, None)
        self._rendezvous.pop(key, None)
        self._update_claims(key)

    def set_job(self, raw: Object) -> bool:
        """Store a Job; whether its plan is to be reconciled."""
        return self.store_job(plan_key(raw), AttemptJob.of(raw))

    def store_job(self, key: Key, job: AttemptJob) -> bool:
        """Store a parsed Job; whether it is newer, and an unfinished one differs in more than its version."""
        cached = self.jobs[key].get(job.name)
        if cached is not None and cached.version >= job.version:
            return False
        self.jobs[key][job.name] = job
        if cached is not None and not job.finished and replace(cached, version=job.version) == job:
            return False
        self._update_claims(key)
        return True

    def remove_job(self, raw: Object) -> None:
        """Remove a deleted Job."""
        key = plan_key(raw)
        self._deleted_uids.add(raw["metadata"]["uid"])
        self.jobs.get(key, {}).pop(AttemptJob.of(raw).name, None)
        self._update_claims(key)

    def set_rendezvous(self, key: Key, store: Rendezvous) -> bool:
        """Cache a rendezvous store; whether it became ready or is ready no more."""
        cached = self._rendezvous.get(key)
        if store.name != rendezvous_name(key[1]) or (cached and cached.version >= store.version):
            return False
        self._rendezvous[key] = store
        return store.ready != bool(cached and cached.ready)

    def remove_rendezvous(self, key: Key, store: Rendezvous) -> None:
        """Remove a deleted rendezvous store, unless another one took its place meanwhile."""
        cached = self._rendezvous.get(key)
        if cached is not None and cached.version <= store.version:
            del self._rendezvous[key]

    def is_rendezvous_ready(self, key: Key) -> bool:
        """Whether the plan's own rendezvous store listens."""
        store, plan = self._rendezvous.get(key), self.plans.get(key)
        return bool(store and plan and store.ready and plan["metadata"]["uid"] in store.owner_uids)

    def reserve(self, key: Key, job: AttemptJob) -> None:
        """Claim the GPUs of a Job that is about to be created."""
        self.jobs[key].setdefault(job.name, job)
        self._update_claims(key)

    def unreserve(self, key: Key) -> None:
        """Release the claims of Jobs that were not created."""
        jobs = self.jobs.get(key, {})
        for name in [job.name for job in jobs.values() if not job.version]:
            del jobs[name]
        self._update_claims(key)

    def owned(self, key: Key) -> tuple[AttemptJob, ...]:
        """The plan's Jobs by owner reference: anybody can set a label."""
        plan = self.plans.get(key)
        if plan is None:
            return ()
        uid = plan["metadata"]["uid"]
        return tuple(job for job in self.jobs.get(key, {}).values() if job.owner_uid == uid)

    def set_node(self, raw: Object) -> bool:
        """Store a node; whether a field that matters to plans has changed (a heartbeat does not)."""
        nodes = {node.place: node for node in ClusterNode.all_of(raw)}
        gone = [place for place, node in self.nodes.items() if node.name in nodes and place not in nodes]
        for place in gone:
            self._remove_place(place)
        changed = [self._store_node(node) for node in nodes.values()]
        return any(changed) or bool(gone)

    def _store_node(self, node: ClusterNode) -> bool:
        node = self.devices.on(node) if self.devices else node
        if self.nodes.get(node.place) == node:
            return False
        self.nodes[node.place] = node
        self._all_nodes = None
        return True

    def remove_node(self, name: str) -> None:
        """Remove a deleted node."""
        for place in [place for place, node in self.nodes.items() if node.name == name]:
            self._remove_place(place)

    def _remove_place(self, place: str) -> None:
        self.nodes.pop(place, None)
        self._all_nodes = None

    def inventory(self, without: Key) -> Inventory:
        """The cluster's GPUs, those of one plan released."""
        owners = [self._owner(job) for job in self.owned(without)]
        held = self._occupancy.held_without(without, owners)
        return replace(self._nodes(), held=held, loads=self._loads)

    def _nodes(self) -> Inventory:
        if self._all_nodes is None:
            self._all_nodes = Inventory(nodes=tuple(self.nodes.values()), devices=self.devices)
            self._loads = replace(self._loads, cached={})
        return self._all_nodes

    def _owner(self, job: AttemptJob) -> Owner:
        return job.namespace, job.uid

    def keys(self) -> CacheKeys:
        """The keys of all cached objects, to pass to `replace_all` after a relist."""
        self._deleted_uids.clear()
        return CacheKeys(
            plans=frozenset(self.plans),
            jobs={(key, name): job.version for key, jobs in self.jobs.items() for name, job in jobs.items()},
            children=frozenset((key, name) for key, names in self.children.items() for name in names),
            nodes=frozenset(self.nodes),
        )

    def replace_all(self, listing: Listing, before: CacheKeys) -> frozenset[Key]:
        """Replace the cache by a listing; the keys of deleted plans.

        Objects that appeared or disappeared during the relist keep the state that the watches gave them.
        """
        plans = [raw for raw in listing.plans if raw["metadata"]["uid"] not in self._deleted_uids]
        for node in listing.nodes:
            self._store_node(node)
        for place in before.nodes - {node.place for node in listing.nodes}:
            self._remove_place(place)
        for raw in plans:
            self.set_plan(raw)
        self._replace_jobs(listing, before)
        for key, store in listing.rendezvous:
            self.set_rendezvous(key, store)
        uids = {plan["metadata"]["uid"] for plan in self.plans.values()}
        children = {(key, name) for key, name, owners in listing.children if not uids.isdisjoint(owners)}
        for key, name in before.children - children:
            self.children[key].discard(name)
        for key, name in children:
            self.children[key].add(name)
        return before.plans - {key_of(raw) for raw in plans}

    def _replace_jobs(self, listing: Listing, before: CacheKeys) -> None:
        listed = {(key, job.name) for key, job in listing.jobs}
        for key, job in listing.jobs:
            if job.uid not in self._deleted_uids:
                self.store_job(key, job)
        for (key, name), version in before.jobs.items():
            cached = self.jobs[key].get(name)
            if cached is not None and version and cached.version == version and (key, name) not in listed:
                del self.jobs[key][name]
                self._update_claims(key)

    def _update_claims(self, key: Key, *, before: Mapping[str, int] | None = None) -> None:
        """Update the GPUs that the plan's unscheduled pods are expected to take.

        `before` is what they were expected to take (None: until now); they still are where it fits, which
        saves a search.
        """
        until_now = self._occupancy.forget(key)
        before = until_now if before is None else before
        for job in self.owned(key):
            pods = self._unscheduled(key, job)
            if pods > 0 and before and self._fits(job, pods, before):
                self._occupancy.expect(key, before)
            elif pods > 0:
                inventory = replace(self._nodes(), held=self._occupancy.held)
                self._occupancy.expect(key, inventory.placed(job.nodes, job.pod_gpus, pods))

    def _fits(self, job: AttemptJob, pods: int, gpus: Mapping[str, int]) -> bool:
        """Whether these GPUs of nodes are what the pods need, free, and on nodes that they may use."""
        return sum(gpus.values()) == pods * job.pod_gpus and all(
            (node := self.nodes.get(name)) is not None
            and self._occupancy.held.get(name, 0) + count <= node.gpus
            and not obstacle(node, job.nodes)
            for name, count in gpus.items()
        )

    def _unscheduled(self, key: Key, job: AttemptJob) -> int:
        """The number of pods that the operator wants of a Job and no node has; tenants can change Jobs."""
        if not job.is_active:
            return 0
        pods = job.parallelism - job.succeeded - self._occupancy.bound(self._owner(job))
        if not job.version:  # about to be created
            return pods
        attempt = AttemptRecord.of((self.plans[key].get("status") or {}).get("attempt"))
        wanted = attempt.gpus if attempt and attempt.job_name == job.name else 0
        return min(pods, -(-wanted // max(1, job.gpus_per_pod)))


def _with_shared_text(value: Any, levels: int = _SHARED_LEVELS) -> Any:
    """A copy whose equal texts are one object: thousands of plans have the same keys and reasons."""
    if isinstance(value, str):
        return sys.intern(value)
    if levels and isinstance(value, dict):
        return {sys.intern(key): _with_shared_text(each, levels - 1) for key, each in value.items()}
    if levels and isinstance(value, list):
        return [_with_shared_text(each, levels - 1) for each in value]
    return value


def _claiming(plan: Object) -> tuple[Any, ...]:
    """The fields that decide which Jobs are the plan's, and the number of pods that it wants of them."""
    return plan["metadata"]["uid"], (plan.get("status") or {}).get("attempt")


def quota_left(quotas: Iterable[Object], *, own: int, names: Iterable[str]) -> int | None:
    """GPUs that quotas leave to a plan that holds `own`; None if no quota has a limit of one of the names."""
    statuses = [quota.get("status", {}) for quota in quotas]
    return min(
        (_left(status, name, own) for name in names for status in statuses if name in status.get("hard", {})),
        default=None,
    )


def _left(status: Object, name: str, own: int) -> int:
    used = parse_quantity(status.get("used", {}).get(name, 0))
    return max(0, parse_quantity(status["hard"][name]) - used + own)
