"""Reads that only some reconciles need: other workloads' pods, quotas, Kueue's queues and Workloads."""

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

_OTHERS_TTL_S = 5.0  # of other workloads' pods, when a plan is sized
_MAX_PODS, _MAX_NAMES = 250, 50  # of one list of workers, which is not paged; plans in its selector
_QUOTA_TTL_S = 1.0
_QUEUE_TTL_S = 30.0
_UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
_KUEUE = "kueue.x-k8s.io"
_JOB_UID = f"{_KUEUE}/job-uid"


class ClusterReader:
    """Cached reads, which plans that are sized together share."""

    def __init__(self, kube: KubeClient, cache: Cache) -> None:
        self._kube, self._cache = kube, cache
        self._others = TTLCache(self._read_others)
        self._quotas: dict[str, TTLCache[list[Mapping[str, Any]]]] = {}
        self._queues: dict[Key, tuple[float, Queue | None]] = {}
        self._version = ("", float("-inf"))

    def invalidate(self) -> None:
        """Expire the GPU counts: GPUs were added or freed."""
        self._others.invalidate()

    async def refresh_others(self, *, max_age_s: float = _OTHERS_TTL_S) -> None:
        """Update the cache's counts of GPUs that other workloads hold or wait for."""
        await self._others.get(max_age_s=max_age_s)

    async def _read_others(self) -> None:
        pods = [*await retry_when_busy(self._unlabelled_pods), *await retry_when_busy(self._unowned_pods)]
        nodes = tuple(self._cache.nodes.values())
        self._cache.bound = bound_gpus(pods)
        self._cache.wanted = unscheduled(pods, nodes) | await retry_when_busy(self._queued)

    async def _unlabelled_pods(self) -> list[Mapping[str, Any]]:
        pods = self._kube.every("/api/v1/pods", labelSelector=f"!{LABEL_PLAN}", fieldSelector=_UNFINISHED)
        return [pod async for pod in pods]

    async def _unowned_pods(self) -> list[Mapping[str, Any]]:
        """Pods with the plan label that no plan owns: anybody can set the label, and they hold GPUs too.

        Lists metadata first, and reads full pods only in the namespaces that have such pods.
        """
        own = {job.uid for key in self._cache.plans for job in self._cache.owned(key)}
        every = functools.partial(self._kube.every, labelSelector=LABEL_PLAN, fieldSelector=_UNFINISHED)
        labelled = every("/api/v1/pods", metadata_only=True)
        namespaces = {pod["metadata"]["namespace"] async for pod in labelled if not self._is_owned(pod, own)}
        unowned: list[Mapping[str, Any]] = []
        for namespace in sorted(namespaces):
            pods = every(f"/api/v1/namespaces/{namespace}/pods")
            unowned += [pod async for pod in pods if not self._is_owned(pod, own)]
        return unowned

    def _is_owned(self, pod: Mapping[str, Any], jobs: Collection[str]) -> bool:
        """Whether a plan's Job (by uid) or its rendezvous ReplicaSet (by name) owns the pod."""
        metadata = pod["metadata"]
        key = (metadata["namespace"], metadata["labels"][LABEL_PLAN])
        owners = {f"{o['kind']}/{o['name']}" for o in metadata.get("ownerReferences", ())}
        store = f"ReplicaSet/{rendezvous_name(key[1])}"
        return bool(owner_uids(pod) & set(jobs)) or (store in owners & self._cache.children.get(key, set()))

    async def _queued(self) -> frozenset[str]:
        """GPU types that other Workloads wait for; empty without Kueue or the right to list all Workloads."""
        version = await self._kueue()
        if not version:
            return frozenset()
        own = {job.uid for jobs in self._cache.jobs.values() for job in jobs.values()}
        try:
            workloads = [item async for item in self._kube.every(f"/apis/{_KUEUE}/{version}/workloads")]
        except ApiError as error:
            if error.status in (403, 404):
                return frozenset()
            raise
        return queued(workloads, tuple(self._cache.nodes.values()), own=own)

    async def quota(self, key: Key) -> int | None:
        """GPUs that the namespace's quotas leave to this plan; None without a quota."""
        own = sum(job.gpus for job in self._cache.owned(key) if job.is_active)
        if key[0] not in self._quotas:
            read = functools.partial(self._read_quotas, key[0])
            self._quotas[key[0]] = TTLCache(functools.partial(retry_when_busy, read))
        return quota_left(await self._quotas[key[0]].get(max_age_s=_QUOTA_TTL_S), own=own)

    async def _read_quotas(self, namespace: str) -> list[Mapping[str, Any]]:
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        return [quota async for quota in self._kube.every(path)]

    async def addresses(self, keys: Collection[Key]) -> dict[Key, list[str]]:
        """The pod IPs of plans' running workers, read in batches."""
        addresses: defaultdict[Key, list[str]] = defaultdict(list)
        for namespace in {key[0] for key in keys}:
            pods = {name: self._pod_count((space, name)) for space, name in keys if space == namespace}
            path = f"/api/v1/namespaces/{namespace}/pods"
            for names in batches(pods, max_weight=_MAX_PODS, max_names=_MAX_NAMES):
                label = f"{LABEL_PLAN} in ({','.join(names)}),{LABEL_ROLE}={WORKER}"
                # from the API server's cache, which is cheapest: a stale address does not answer
                listed = self._kube.every(path, labelSelector=label, resourceVersion="0")
                with contextlib.suppress(ApiError):
                    async for raw in listed:
                        key, pod = (namespace, raw["metadata"]["labels"][LABEL_PLAN]), Pod.of(raw)
                        own = {job.uid for job in self._cache.owned(key)}
                        if pod.address and pod.phase == "Running" and owner_uids(raw) & own:
                            addresses[key].append(pod.address)
        return dict(addresses)

    def _pod_count(self, key: Key) -> int:
        return sum(job.parallelism for job in self._cache.owned(key) if job.is_active)

    async def queue(self, plan: Mapping[str, Any]) -> Queue | None:
        """The plan's queue; None if it names none or the cluster does not run Kueue."""
        metadata = plan["metadata"]
        name = metadata.get("labels", {}).get(QUEUE_LABEL)
        if not name:
            return None
        key, now = (metadata["namespace"], name), time.monotonic()
        expires, queue = self._queues.get(key, (float("-inf"), None))
        if now < expires:
            return queue
        version = await self._kueue()
        queue = await self._read_queue(key, version) if version else None
        self._queues[key] = (now + _QUEUE_TTL_S, queue)
        return queue

    async def workloads(self, plan: Mapping[str, Any], jobs: tuple[AttemptJob, ...]) -> tuple[Workload, ...]:
        """The Workloads of Jobs that are pending, growing or to be suspended."""
        suspend = bool(plan["spec"].get("suspend"))
        pending = [job for job in jobs if not job.finished and _needs_workload(job, suspend=suspend)]
        version = await self._kueue() if pending else ""
        if not version:
            return ()
        path = f"/apis/{_KUEUE}/{version}/namespaces/{plan['metadata']['namespace']}/workloads"
        selector = f"{_JOB_UID} in ({','.join(job.uid for job in pending)})"
        return tuple([Workload.of(raw) async for raw in self._kube.every(path, labelSelector=selector)])

    async def activate(self, namespace: str, name: str, *, active: bool) -> None:
        """Set a Workload's spec.active."""
        await self._kube.patch_workload(await self._kueue(), namespace, name, active=active)

    async def _kueue(self) -> str:
        """The preferred version of Kueue's API; empty without Kueue."""
        version, expires = self._version
        if time.monotonic() < expires:
            return version
        group = await self._get(f"/apis/{_KUEUE}")
        version = str(group["preferredVersion"]["version"]) if group else ""
        self._version = (version, time.monotonic() + _QUEUE_TTL_S)
        return version

    async def _read_queue(self, key: Key, version: str) -> Queue:
        """A missing queue counts as one without limits: Kueue reports what is wrong with it."""
        root = f"/apis/{_KUEUE}/{version}"
        local = await self._get(f"{root}/namespaces/{key[0]}/localqueues/{key[1]}")
        name = local["spec"].get("clusterQueue", "") if local else ""
        cluster_queue = await self._get(f"{root}/clusterqueues/{name}") if name else None
        if cluster_queue is None:
            return Queue(name=key[1])
        levels: tuple[str, ...] = ()
        for flavor in flavors_of(cluster_queue):
            spec = (await self._get(f"{root}/resourceflavors/{flavor}") or {}).get("spec", {})
            topology_name = spec.get("topologyName")
            topology = await self._get(f"{root}/topologies/{topology_name}") if topology_name else None
            levels = levels_of(topology) if topology else ()
            if not levels:
                break  # Kueue rejects a topology request if one flavor of the queue has no topology
        return Queue(name=key[1], gpus=gpus_of(cluster_queue), levels=levels)

    async def _get(self, path: str) -> Mapping[str, Any] | None:
        try:
            return await self._kube.call("GET", path)
        except ApiError as error:
            if error.status in (403, 404):  # forbidden counts as missing: the Job is queued all the same
                return None
            raise


def batches(weights: Mapping[str, int], *, max_weight: int, max_names: int) -> Iterator[list[str]]:
    """Names in batches of limited size and total weight; a heavier name is a batch of its own."""
    batch: list[str] = []
    left = max_weight
    for name, weight in weights.items():
        if batch and (weight > left or len(batch) == max_names):
            yield batch
            batch, left = [], max_weight
        batch.append(name)
        left -= weight
    if batch:
        yield batch


def _needs_workload(job: AttemptJob, *, suspend: bool) -> bool:
    return bool(job.uid) and (job.suspended or suspend or job.ready < job.parallelism)
