"""What is read around a plan only when a decision needs it: other people's pods, quotas, its queue."""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rightsizer_operator.cluster.cache import Cache, bound_gpus, quota_left
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.cluster.demand import queued, unscheduled
from rightsizer_operator.cluster.relist import retry_when_busy
from rightsizer_operator.cluster.ttl_cache import TTLCache
from rightsizer_operator.values.kueue import Queue, Workload, flavors_of, gpus_of, levels_of
from rightsizer_operator.values.names import LABEL_PLAN, LABEL_ROLE, QUEUE_LABEL, WORKER, rendezvous_name
from rightsizer_operator.values.snapshot import AttemptJob, Key, Pod, owner_uids

__all__ = ["ClusterReader", "batches"]

_BOUND_FOR_S = 5.0  # how old the count of other people's pods may be when a plan is sized
_PODS, _NAMES = 250, 50  # that a list of workers may hold (it comes in one piece), and plans that it names
_QUOTA_FOR_S = 1.0
_QUEUE_FOR_S = 30.0
_NOT_OVER = "status.phase!=Succeeded,status.phase!=Failed"
_KUEUE = "kueue.x-k8s.io"
_JOB_UID = f"{_KUEUE}/job-uid"


class ClusterReader:
    """Reads, with short memories, so that many plans that are sized together share one."""

    def __init__(self, kube: KubeClient, cache: Cache) -> None:
        self._kube, self._cache = kube, cache
        self._others = TTLCache(self._count)
        self._quotas: dict[str, TTLCache[list[Mapping[str, Any]]]] = {}
        self._queues: dict[Key, tuple[float, Queue | None]] = {}
        self._version = ("", float("-inf"))

    def forget(self) -> None:
        """GPUs came or went: count again when next asked."""
        self._others.forget()

    async def count_others(self, *, within_s: float = _BOUND_FOR_S) -> None:
        """GPUs that pods of others hold or wait for; all who ask within a few seconds share one count."""
        await self._others.get(within_s=within_s)

    async def _count(self) -> None:
        pods = [*await retry_when_busy(self._read_others), *await retry_when_busy(self._read_unowned)]
        nodes = tuple(self._cache.nodes.values())
        self._cache.bound = bound_gpus(pods)
        self._cache.wanted = unscheduled(pods, nodes) | await retry_when_busy(self._queued)

    async def _read_others(self) -> list[Mapping[str, Any]]:
        every = self._kube.every("/api/v1/pods", labelSelector=f"!{LABEL_PLAN}", fieldSelector=_NOT_OVER)
        return [pod async for pod in every]

    async def _read_unowned(self) -> list[Mapping[str, Any]]:
        """Pods with our label that no plan owns: anybody may write a label, and such pods hold GPUs too.

        Metadata tells which namespaces have such pods; whole pods are read only there.
        """
        own = {job.uid for key in self._cache.plans for job in self._cache.owned(key)}
        every = functools.partial(self._kube.every, labelSelector=LABEL_PLAN, fieldSelector=_NOT_OVER)
        labelled = every("/api/v1/pods", metadata_only=True)
        namespaces = {pod["metadata"]["namespace"] async for pod in labelled if not self._is_ours(pod, own)}
        found: list[Mapping[str, Any]] = []
        for namespace in sorted(namespaces):
            pods = every(f"/api/v1/namespaces/{namespace}/pods")
            found += [pod async for pod in pods if not self._is_ours(pod, own)]
        return found

    def _is_ours(self, pod: Mapping[str, Any], jobs: Collection[str]) -> bool:
        """Whether a plan's Job (by uid) or its rendezvous ReplicaSet (by name) owns the pod."""
        metadata = pod["metadata"]
        key = (metadata["namespace"], metadata["labels"][LABEL_PLAN])
        owners = {f"{o['kind']}/{o['name']}" for o in metadata.get("ownerReferences", ())}
        store = f"ReplicaSet/{rendezvous_name(key[1])}"
        return bool(owner_uids(pod) & set(jobs)) or (store in owners & self._cache.supports.get(key, set()))

    async def _queued(self) -> frozenset[str]:
        """GPUs that others' Workloads wait for, where Kueue is, and all its queues may be read."""
        version = await self._kueue()
        if not version:
            return frozenset()
        own = {job.uid for jobs in self._cache.jobs.values() for job in jobs.values()}
        try:
            every = [each async for each in self._kube.every(f"/apis/{_KUEUE}/{version}/workloads")]
        except ApiError as error:
            if error.status in (403, 404):
                return frozenset()
            raise
        return queued(every, tuple(self._cache.nodes.values()), own=own)

    async def quota(self, key: Key) -> int | None:
        """GPUs that the namespace's quotas leave to this plan; None without one."""
        own = sum(job.gpus for job in self._cache.owned(key) if job.is_active)
        if key[0] not in self._quotas:
            read = functools.partial(self._read_quotas, key[0])
            self._quotas[key[0]] = TTLCache(functools.partial(retry_when_busy, read))
        return quota_left(await self._quotas[key[0]].get(within_s=_QUOTA_FOR_S), own=own)

    async def _read_quotas(self, namespace: str) -> list[Mapping[str, Any]]:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        return [quota async for quota in self._kube.every(path)]

    async def addresses(self, keys: Collection[Key]) -> dict[Key, list[str]]:
        """Addresses of plans' running workers, where there are any; many plans are asked for at once."""
        found: defaultdict[Key, list[str]] = defaultdict(list)
        for namespace in {key[0] for key in keys}:
            pods = {name: self._pods((space, name)) for space, name in keys if space == namespace}
            path = f"/api/v1/namespaces/{namespace}/pods"
            for some in batches(pods, most=_PODS, most_names=_NAMES):
                label = f"{LABEL_PLAN} in ({','.join(some)}),{LABEL_ROLE}={WORKER}"
                # as the API server remembers them, which costs it least: a wrong address does not answer
                every = self._kube.every(path, labelSelector=label, resourceVersion="0")
                with contextlib.suppress(ApiError):
                    async for raw in every:
                        key, pod = (namespace, raw["metadata"]["labels"][LABEL_PLAN]), Pod.of(raw)
                        own = {job.uid for job in self._cache.owned(key)}
                        if pod.address and pod.phase == "Running" and owner_uids(raw) & own:
                            found[key].append(pod.address)
        return dict(found)

    def _pods(self, key: Key) -> int:
        return sum(job.parallelism for job in self._cache.owned(key) if job.is_active)

    async def queue(self, plan: Mapping[str, Any]) -> Queue | None:
        """The plan's queue; None if it names none, or nobody here serves queues."""
        metadata = plan["metadata"]
        name = metadata.get("labels", {}).get(QUEUE_LABEL)
        if not name:
            return None
        key, now = (metadata["namespace"], name), time.monotonic()
        until, known = self._queues.get(key, (float("-inf"), None))
        if now < until:
            return known
        version = await self._kueue()
        found = await self._read(key, version) if version else None
        self._queues[key] = (now + _QUEUE_FOR_S, found)
        return found

    async def workloads(self, plan: Mapping[str, Any], jobs: tuple[AttemptJob, ...]) -> tuple[Workload, ...]:
        """What Kueue holds for Jobs that wait, that are to wait, or that grow."""
        asked = bool(plan["spec"].get("suspend"))
        waits = [job for job in jobs if not job.finished and _held(job, asked=asked)]
        version = await self._kueue() if waits else ""
        if not version:
            return ()
        path = f"/apis/{_KUEUE}/{version}/namespaces/{plan['metadata']['namespace']}/workloads"
        selector = f"{_JOB_UID} in ({','.join(job.uid for job in waits)})"
        return tuple([Workload.of(raw) async for raw in self._kube.every(path, labelSelector=selector)])

    async def activate(self, namespace: str, name: str, *, active: bool) -> None:
        """Let Kueue run a Workload, or not."""
        await self._kube.patch_workload(await self._kueue(), namespace, name, active=active)

    async def _kueue(self) -> str:
        """The version in which Kueue's API is spoken here; empty without Kueue."""
        version, until = self._version
        if time.monotonic() < until:
            return version
        group = await self._found(f"/apis/{_KUEUE}")
        version = str(group["preferredVersion"]["version"]) if group else ""
        self._version = (version, time.monotonic() + _QUEUE_FOR_S)
        return version

    async def _read(self, key: Key, version: str) -> Queue:
        """A queue that does not exist, or points nowhere, is one without limits: Kueue says what is wrong."""
        root = f"/apis/{_KUEUE}/{version}"
        local = await self._found(f"{root}/namespaces/{key[0]}/localqueues/{key[1]}")
        name = local["spec"].get("clusterQueue", "") if local else ""
        found = await self._found(f"{root}/clusterqueues/{name}") if name else None
        if found is None:
            return Queue(name=key[1])
        levels: tuple[str, ...] = ()
        for flavor in flavors_of(found):
            kind = await self._found(f"{root}/resourceflavors/{flavor}")
            asked = kind["spec"].get("topologyName") if kind else None
            topology = await self._found(f"{root}/topologies/{asked}") if asked else None
            levels = levels_of(topology) if topology else ()
            if not levels:
                break  # Kueue refuses such a wish where one kind of GPU of the queue has no topology
        return Queue(name=key[1], gpus=gpus_of(found), levels=levels)

    async def _found(self, path: str) -> Mapping[str, Any] | None:
        try:
            return await self._kube.call("GET", path)
        except ApiError as error:
            if error.status in (403, 404):  # not granted counts as not there: the Job is queued all the same
                return None
            raise


def batches(weights: Mapping[str, int], *, most: int, most_names: int) -> Iterator[list[str]]:
    """Names in batches of so many, and of so much weight; what weighs more than that stands alone."""
    batch: list[str] = []
    left = most
    for name, weight in weights.items():
        if batch and (weight > left or len(batch) == most_names):
            yield batch
            batch, left = [], most
        batch.append(name)
        left -= weight
    if batch:
        yield batch


def _held(job: AttemptJob, *, asked: bool) -> bool:
    return bool(job.uid) and (job.suspended or asked or job.ready < job.parallelism)
