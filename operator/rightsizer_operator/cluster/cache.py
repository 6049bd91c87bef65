"""The watch cache: plans, their Jobs and other children, and nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rightsizer.values import immutable
from rightsizer_operator.cluster.relist import Listing
from rightsizer_operator.values.inventory import Inventory, Node
from rightsizer_operator.values.names import GPU_RESOURCE
from rightsizer_operator.values.quantities import parse_quantity
from rightsizer_operator.values.snapshot import AttemptJob, Key, plan_key

__all__ = ["Cache", "CacheKeys", "bound_gpus", "quota_left"]

Object = Mapping[str, Any]


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
        self.nodes: dict[str, Node] = {}
        self.wanted: frozenset[str] = frozenset()
        self._bound: dict[str, int] = {}
        self._shared_inventory: Inventory | None = None
        self._claims: dict[Key, Counter[str]] = {}
        self._claimed: Counter[str] = Counter()
        self._deleted_uids: set[str] = set()

    @property
    def bound(self) -> dict[str, int]:
        """GPUs of each node that pods of other workloads hold."""
        return self._bound

    @bound.setter
    def bound(self, held: dict[str, int]) -> None:
        if held != self._bound:
            self._bound, self._shared_inventory = held, None

    def set_plan(self, raw: Object) -> bool:
        """Store a plan; whether it is newer than the cached one."""
        metadata = raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        cached = self.plans.get(key)
        if cached is not None and int(cached["metadata"]["resourceVersion"]) >= int(
            metadata["resourceVersion"]
        ):
            return False
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        self.plans[key] = {**raw, "metadata": kept}
        if cached is None or cached["metadata"]["uid"] != metadata["uid"]:
            self._update_claims(key)  # which Jobs the plan owns depends on its uid
        return True

    def remove_plan(self, key: Key) -> None:
        """Remove a deleted plan and its children."""
        plan = self.plans.pop(key, None)
        self._deleted_uids |= {plan["metadata"]["uid"]} if plan else set()
        self.jobs.pop(key, None)
        self.children.pop(key, None)
        self._update_claims(key)

    def set_job(self, raw: Object) -> bool:
        """Store a Job; whether it is newer than the cached one."""
        return self._store_job(plan_key(raw), AttemptJob.of(raw))

    def _store_job(self, key: Key, job: AttemptJob) -> bool:
        cached = self.jobs[key].get(job.name)
        if cached is not None and cached.version >= job.version:
            return False
        self.jobs[key][job.name] = job
        self._update_claims(key)
        return True

    def remove_job(self, raw: Object) -> None:
        """Remove a deleted Job."""
        key = plan_key(raw)
        self._deleted_uids.add(raw["metadata"]["uid"])
        self.jobs[key].pop(raw["metadata"]["name"], None)
        self._update_claims(key)

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
        return self._store_node(Node.of(raw))

    def _store_node(self, node: Node) -> bool:
        if self.nodes.get(node.name) == node:
            return False
        self.nodes[node.name] = node
        self._shared_inventory = None
        return True

    def remove_node(self, name: str) -> None:
        """Remove a deleted node."""
        self.nodes.pop(name, None)
        self._shared_inventory = None

    def inventory(self, without: Key) -> Inventory:
        """The cluster's GPUs, without the claims of one plan."""
        if self._shared_inventory is None:
            self._shared_inventory = Inventory(nodes=tuple(self.nodes.values()), bound=self._bound)
        claimed = dict(self._claimed)
        for kind, gpus in self._claims.get(without, {}).items():
            claimed[kind] -= gpus
        return replace(self._shared_inventory, claimed=claimed)

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
        for name in before.nodes - {node.name for node in listing.nodes}:
            self.remove_node(name)
        for raw in plans:
            self.set_plan(raw)
        self._replace_jobs(listing, before)
        uids = {plan["metadata"]["uid"] for plan in self.plans.values()}
        children = {(key, name) for key, name, owners in listing.children if not uids.isdisjoint(owners)}
        for key, name in before.children - children:
            self.children[key].discard(name)
        for key, name in children:
            self.children[key].add(name)
        return before.plans - {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in plans}

    def _replace_jobs(self, listing: Listing, before: CacheKeys) -> None:
        listed = {(key, job.name) for key, job in listing.jobs}
        for key, job in listing.jobs:
            if job.uid not in self._deleted_uids:
                self._store_job(key, job)
        for (key, name), version in before.jobs.items():
            cached = self.jobs[key].get(name)
            if cached is not None and version and cached.version == version and (key, name) not in listed:
                del self.jobs[key][name]
                self._update_claims(key)

    def _update_claims(self, key: Key) -> None:
        """Update the sum of all claims, which every reconcile reads."""
        self._claimed.subtract(self._claims.pop(key, {}))
        claims: Counter[str] = Counter()
        for job in self.owned(key):
            if job.is_active:
                claims[job.gpu_type] += job.gpus
        if claims:
            self._claims[key] = claims
            self._claimed.update(claims)


def bound_gpus(pods: Iterable[Object]) -> dict[str, int]:
    """GPUs of each node that these pods hold."""
    held: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        spec = pod["spec"]
        node = spec.get("nodeName")
        if not node or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        limits = (c.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0) for c in spec["containers"])
        count = sum(parse_quantity(limit) for limit in limits)
        if count:
            held[node] += count
    return dict(held)


def quota_left(quotas: Iterable[Object], *, own: int) -> int | None:
    """GPUs that quotas leave to a plan that holds `own`; None if no quota limits GPUs."""
    name, lefts = f"requests.{GPU_RESOURCE}", []
    for quota in quotas:
        status = quota.get("status", {})
        if name in status.get("hard", {}):
            lefts.append(
                max(
                    0,
                    parse_quantity(status["hard"][name])
                    - parse_quantity(status.get("used", {}).get(name, 0))
                    + own,
                )
            )
    return min(lefts, default=None)
