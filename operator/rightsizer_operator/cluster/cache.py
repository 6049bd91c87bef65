"""What the watches have told: plans, their Jobs, nodes, and which supports each plan has."""

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

__all__ = ["Cache", "Marks", "bound_gpus", "quota_left"]

Object = Mapping[str, Any]


@immutable
class Marks:
    """What was known when a survey began: only that may be missing in it because it is gone."""

    plans: frozenset[Key]
    jobs: Mapping[tuple[Key, str], int]
    supports: frozenset[tuple[Key, str]]
    nodes: frozenset[str]


class Cache:
    """The newest of everything by its resourceVersion; late news of an older version is dropped.

    `bound` is GPUs of each node that pods of others hold, `wanted` the types that others wait for.
    """

    def __init__(self) -> None:
        self.plans: dict[Key, dict[str, Any]] = {}
        self.jobs: defaultdict[Key, dict[str, AttemptJob]] = defaultdict(dict)
        self.supports: defaultdict[Key, set[str]] = defaultdict(set)
        self.nodes: dict[str, Node] = {}
        self.wanted: frozenset[str] = frozenset()
        self._bound: dict[str, int] = {}
        self._everybody: Inventory | None = None
        self._claims: dict[Key, Counter[str]] = {}
        self._claimed: Counter[str] = Counter()
        self._gone: set[str] = set()

    @property
    def bound(self) -> dict[str, int]:
        """GPUs of each node that pods of others hold."""
        return self._bound

    @bound.setter
    def bound(self, held: dict[str, int]) -> None:
        if held != self._bound:
            self._bound, self._everybody = held, None

    def saw_plan(self, raw: Object) -> bool:
        """A plan as it is now; whether that is news."""
        metadata = raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        known = self.plans.get(key)
        if known is not None and int(known["metadata"]["resourceVersion"]) >= int(
            metadata["resourceVersion"]
        ):
            return False
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        self.plans[key] = {**raw, "metadata": kept}
        if known is None or known["metadata"]["uid"] != metadata["uid"]:
            self._count(key)  # which Jobs are the plan's depends on its uid
        return True

    def lost_plan(self, key: Key) -> None:
        """A plan is gone, and its children with it."""
        plan = self.plans.pop(key, None)
        self._gone |= {plan["metadata"]["uid"]} if plan else set()
        self.jobs.pop(key, None)
        self.supports.pop(key, None)
        self._count(key)

    def saw_job(self, raw: Object) -> bool:
        """A Job as it is now; whether that is news."""
        return self._know(plan_key(raw), AttemptJob.of(raw))

    def _know(self, key: Key, job: AttemptJob) -> bool:
        known = self.jobs[key].get(job.name)
        if known is not None and known.version >= job.version:
            return False
        self.jobs[key][job.name] = job
        self._count(key)
        return True

    def lost_job(self, raw: Object) -> None:
        """A Job is gone."""
        key = plan_key(raw)
        self._gone.add(raw["metadata"]["uid"])
        self.jobs[key].pop(raw["metadata"]["name"], None)
        self._count(key)

    def reserve(self, key: Key, job: AttemptJob) -> None:
        """A Job that is about to be made claims its GPUs."""
        self.jobs[key].setdefault(job.name, job)
        self._count(key)

    def unreserve(self, key: Key) -> None:
        """Jobs that were not made claim nothing."""
        jobs = self.jobs.get(key, {})
        for name in [job.name for job in jobs.values() if not job.version]:
            del jobs[name]
        self._count(key)

    def owned(self, key: Key) -> tuple[AttemptJob, ...]:
        """The plan's own Jobs, by owner reference: anybody may write our labels on a Job."""
        plan = self.plans.get(key)
        if plan is None:
            return ()
        uid = plan["metadata"]["uid"]
        return tuple(job for job in self.jobs.get(key, {}).values() if job.owner_uid == uid)

    def saw_node(self, raw: Object) -> bool:
        """A node as it is now; whether that changes anything for a plan (its heartbeat does not)."""
        return self._know_node(Node.of(raw))

    def _know_node(self, node: Node) -> bool:
        if self.nodes.get(node.name) == node:
            return False
        self.nodes[node.name] = node
        self._everybody = None
        return True

    def lost_node(self, name: str) -> None:
        """A node is gone."""
        self.nodes.pop(name, None)
        self._everybody = None

    def inventory(self, without: Key) -> Inventory:
        """The cluster's GPUs as one plan sees them."""
        if self._everybody is None:
            self._everybody = Inventory(nodes=tuple(self.nodes.values()), bound=self._bound)
        claimed = dict(self._claimed)
        for kind, gpus in self._claims.get(without, {}).items():
            claimed[kind] -= gpus
        return replace(self._everybody, claimed=claimed)

    def marks(self) -> Marks:
        """What is known now, to be handed to `renew` with what is then read."""
        self._gone.clear()
        return Marks(
            plans=frozenset(self.plans),
            jobs={(key, name): job.version for key, jobs in self.jobs.items() for name, job in jobs.items()},
            supports=frozenset((key, name) for key, names in self.supports.items() for name in names),
            nodes=frozenset(self.nodes),
        )

    def renew(self, found: Listing, before: Marks) -> frozenset[Key]:
        """Take over what a survey found; what was known before and is not found is gone: which plans are.

        What came or went while it was read is not touched: the watches know better.
        """
        listed = [raw for raw in found.plans if raw["metadata"]["uid"] not in self._gone]
        for node in found.nodes:
            self._know_node(node)
        for name in before.nodes - {node.name for node in found.nodes}:
            self.lost_node(name)
        for raw in listed:
            self.saw_plan(raw)
        self._renew_jobs(found, before)
        uids = {plan["metadata"]["uid"] for plan in self.plans.values()}
        supports = {(key, name) for key, name, owners in found.supports if not uids.isdisjoint(owners)}
        for key, name in before.supports - supports:
            self.supports[key].discard(name)
        for key, name in supports:
            self.supports[key].add(name)
        return before.plans - {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in listed}

    def _renew_jobs(self, found: Listing, before: Marks) -> None:
        there = {(key, job.name) for key, job in found.jobs}
        for key, job in found.jobs:
            if job.uid not in self._gone:
                self._know(key, job)
        for (key, name), version in before.jobs.items():
            known = self.jobs[key].get(name)
            if known is not None and version and known.version == version and (key, name) not in there:
                del self.jobs[key][name]
                self._count(key)

    def _count(self, key: Key) -> None:
        """Keep the sum of what Jobs claim: it is asked for at every look at every plan."""
        self._claimed.subtract(self._claims.pop(key, {}))
        claims: Counter[str] = Counter()
        for job in self.owned(key):
            if job.is_active:
                claims[job.gpu_type] += job.gpus
        if claims:
            self._claims[key] = claims
            self._claimed.update(claims)


def bound_gpus(pods: Iterable[Object]) -> dict[str, int]:
    """GPUs of each node that pods hold."""
    held: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        spec = pod["spec"]
        node = spec.get("nodeName")
        if not node or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        asked = (c.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0) for c in spec["containers"])
        count = sum(parse_quantity(each) for each in asked)
        if count:
            held[node] += count
    return dict(held)


def quota_left(quotas: Iterable[Object], *, own: int) -> int | None:
    """GPUs that quotas leave to a plan that holds `own` of them already; None where none counts GPUs."""
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
