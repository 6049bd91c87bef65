"""What the watches have told: plans, their Jobs, nodes, and which supports each plan has."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rightsizer_api.plan import KIND
from rightsizer_operator.inventory import Inventory, Node
from rightsizer_operator.names import GPU_RESOURCE, LABEL_PLAN
from rightsizer_operator.quantities import whole
from rightsizer_operator.world import Job

__all__ = ["Cache", "Key", "bound_gpus", "plan_key", "quota_left"]

Key = tuple[str, str]
"""Namespace and name of a plan."""
Object = Mapping[str, Any]


def plan_key(raw: Object) -> Key:
    """The plan that an object of ours belongs to: its owner's name, whatever became of its label."""
    metadata = raw["metadata"]
    owners = (o["name"] for o in metadata.get("ownerReferences", ()) if o["kind"] == KIND)
    return metadata["namespace"], next(owners, metadata.get("labels", {}).get(LABEL_PLAN, ""))


class Cache:
    """The newest of everything by its resourceVersion; late news of an older version is dropped.

    `bound` is GPUs of each node that pods of others hold, `wanted` the types that others wait for.
    """

    def __init__(self) -> None:
        self.plans: dict[Key, dict[str, Any]] = {}
        self.jobs: defaultdict[Key, dict[str, Job]] = defaultdict(dict)
        self.supports: defaultdict[Key, set[str]] = defaultdict(set)
        self.nodes: dict[str, Node] = {}
        self.bound: dict[str, int] = {}
        self.wanted: frozenset[str] = frozenset()

    def saw_plan(self, raw: Object) -> bool:
        """A plan as it is now; whether that is news."""
        metadata = raw["metadata"]
        key = (metadata["namespace"], metadata["name"])
        known = self.plans.get(key)
        if known is not None and int(known["metadata"]["resourceVersion"]) >= int(
            metadata["resourceVersion"]
        ):
            return False
        self.plans[key] = {**raw}
        return True

    def lost_plan(self, key: Key) -> None:
        """A plan is gone, and its children with it."""
        self.plans.pop(key, None)
        self.jobs.pop(key, None)
        self.supports.pop(key, None)

    def saw_job(self, raw: Object) -> bool:
        """A Job as it is now; whether that is news."""
        job, jobs = Job.of(raw), self.jobs[plan_key(raw)]
        known = jobs.get(job.name)
        if known is not None and known.version >= job.version:
            return False
        jobs[job.name] = job
        return True

    def lost_job(self, raw: Object) -> None:
        """A Job is gone."""
        key = plan_key(raw)
        self.jobs[key].pop(raw["metadata"]["name"], None)

    def owned(self, key: Key) -> tuple[Job, ...]:
        """The plan's own Jobs: a label is not enough, anybody may write one."""
        plan = self.plans.get(key)
        uid = plan["metadata"]["uid"] if plan else ""
        return tuple(job for job in self.jobs.get(key, {}).values() if job.owner_uid == uid)

    def saw_node(self, raw: Object) -> bool:
        """A node as it is now; whether that changes anything for a plan (its heartbeat does not)."""
        node = Node.of(raw)
        if self.nodes.get(node.name) == node:
            return False
        self.nodes[node.name] = node
        return True

    def inventory(self, without: Key) -> Inventory:
        """The cluster's GPUs as one plan sees them."""
        claimed: defaultdict[str, int] = defaultdict(int)
        for key, jobs in self.jobs.items():
            if key == without:
                continue
            for job in jobs.values():
                if job.lives:
                    claimed[job.gpu_type] += job.gpus
        return Inventory(nodes=tuple(self.nodes.values()), bound=dict(self.bound), claimed=dict(claimed))


def bound_gpus(pods: Iterable[Object]) -> dict[str, int]:
    """GPUs of each node that pods hold."""
    held: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        spec = pod["spec"]
        node = spec.get("nodeName")
        if not node or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            continue
        asked = (c.get("resources", {}).get("limits", {}).get(GPU_RESOURCE, 0) for c in spec["containers"])
        count = sum(whole(each) for each in asked)
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
                max(0, whole(status["hard"][name]) - whole(status.get("used", {}).get(name, 0)) + own)
            )
    return min(lefts, default=None)
