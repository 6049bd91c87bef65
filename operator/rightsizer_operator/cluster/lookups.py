"""Reads that only some reconciles need: other workloads' pods, quotas, Kueue's queues and Workloads."""

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rightsizer_operator.cluster.cache import Cache, quota_left
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.cluster.demand import queued, unscheduled
from rightsizer_operator.cluster.device_reader import read_devices
from rightsizer_operator.cluster.gpu_pods import read_gpu_pods
from rightsizer_operator.cluster.occupancy import owner_of
from rightsizer_operator.cluster.relist import retry_when_busy
from rightsizer_operator.cluster.ttl_cache import TTLCache
from rightsizer_operator.values.conditions import state_of
from rightsizer_operator.values.devices import quota_name
from rightsizer_operator.values.kueue import (
    KueueWorkload,
    Queue,
    cluster_queue_of,
    flavors_of,
    gpus_of,
    levels_of,
    owners_of,
    part_of,
    preferred_version,
    topology_of,
)
from rightsizer_operator.values.metadata import Key, gpu_types_of, is_observed, owner_uids
from rightsizer_operator.values.names import LABEL_PLAN, LABEL_ROLE, QUEUE_LABEL, WORKER
from rightsizer_operator.values.nodes import gpu_type
from rightsizer_operator.values.pods import Pod, PodPhase
from rightsizer_operator.values.requests import Allowance, allowance
from rightsizer_operator.values.snapshot import AttemptJob
from rightsizer_operator.values.vendors import vendors_of

_PODS_TTL_S = 5.0  # of the pods that hold GPUs, when a plan is sized
_MAX_PODS, _MAX_NAMES = 250, 50  # of one list of workers, which is not paged; plans in its selector
_QUOTA_TTL_S = 1.0
_QUEUE_TTL_S = 30.0
_NO_KUEUE_TTL_S = 2.0
"""Less than Kueue takes to start: a Job that it has suspended must not pass for one that nobody queues."""
_KUEUE = "kueue.x-k8s.io"
_JOB_UID = f"{_KUEUE}/job-uid"


class ClusterReader:
    """Cached reads, which plans that are sized together share."""

    def __init__(self, kube: KubeClient, cache: Cache, *, device_class: str = "") -> None:
        self._kube, self._cache, self._device_class = kube, cache, device_class
        self._pods = TTLCache(self._read_pods)
        self._namespaced: dict[tuple[str, str], TTLCache[list[Mapping[str, Any]] | None]] = {}
        self._queues: dict[Key, tuple[float, Queue]] = {}
        self._version = ("", float("-inf"))

    def invalidate(self) -> None:
        """Expire the GPU counts: GPUs were added or freed."""
        self._pods.invalidate()

    async def refresh_pods(self, *, max_age_s: float = _PODS_TTL_S) -> None:
        """Update which GPUs pods hold, and which types other workloads wait for."""
        await self._pods.get(max_age_s=max_age_s)

    async def refresh_devices(self) -> None:
        """Update the devices that pods claim and which pods hold them, if pods claim their GPUs."""
        if self._device_class:
            read = functools.partial(read_devices, self._kube, self._device_class)
            self._cache.set_devices(await retry_when_busy(read))

    async def _read_pods(self) -> None:
        """Owner references decide which pods are a plan's: anybody can set a label."""
        await self.refresh_devices()
        gpu_nodes = {node.name for node in self._cache.nodes.values() if node.gpus}
        read = functools.partial(read_gpu_pods, self._kube, self._cache.devices, gpu_nodes)
        found = await retry_when_busy(read)
        own = {(key[0], job.uid) for key in self._cache.plans for job in self._cache.owned(key)}
        others, nodes = (
            (pod for pod in found.waiting if owner_of(pod) not in own),
            tuple(self._cache.nodes.values()),
        )
        self._cache.wanted = unscheduled(others, nodes) | await retry_when_busy(self._queued)
        self._cache.set_pods(found.bound, found.loads)

    async def _queued(self) -> frozenset[str]:
        """GPU types that other Workloads wait for; empty without Kueue or the right to list all Workloads."""
        version = await self._kueue()
        if not version:
            return frozenset()
        jobs = (job for jobs in self._cache.jobs.values() for job in jobs.values())
        own = {(job.namespace, job.kind, job.name) for job in jobs}
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
        quotas = await self._listed(key[0], "resourcequotas")
        return quota_left(quotas or (), own=own, names=self._quota_names(key))

    async def allowance(self, key: Key) -> Allowance | None:
        """CPU and memory that the namespace leaves to a plan that may be launched.

        None: it has a Job or has ended, or the operator may not see that.
        """
        if self._cache.owned(key) or _is_over(self._cache.plans.get(key) or {}):
            return None
        quotas = await self._listed(key[0], "resourcequotas")
        limits = await self._listed(key[0], "limitranges")
        if quotas is None or limits is None:
            return None
        return allowance(quotas, limits, left_gpus=await self.quota(key))

    async def _listed(self, namespace: str, plural: str) -> list[Mapping[str, Any]] | None:
        """A namespace's objects of a kind; None without the right to list them."""
        if (namespace, plural) not in self._namespaced:
            read = functools.partial(self._read_listed, f"/api/v1/namespaces/{namespace}/{plural}")
            self._namespaced[namespace, plural] = TTLCache(functools.partial(retry_when_busy, read))
        return await self._namespaced[namespace, plural].get(max_age_s=_QUOTA_TTL_S)

    def _quota_names(self, key: Key) -> tuple[str, ...]:
        """Quotas' names of the GPUs that the plan may use."""
        if self._device_class:
            return (quota_name(self._device_class),)
        named = gpu_types_of(self._cache.plans.get(key, {}))
        kinds, nodes = {gpu_type(name) for name in named}, self._cache.nodes.values()
        slices = {node.resource for node in nodes if node.resource and gpu_type(node.product) in kinds}
        resources = sorted(slices) or [vendor.resource for vendor in vendors_of(named)]
        return tuple(f"requests.{resource}" for resource in resources)

    async def _read_listed(self, path: str) -> list[Mapping[str, Any]] | None:
        try:
            return [found async for found in self._kube.every(path)]
        except ApiError as error:
            if error.status == 403:
                return None
            raise

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
                        if pod.address and pod.phase == PodPhase.RUNNING and owner_uids(raw) & own:
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
        known = self._queues.get(key)
        if known and now < known[0]:
            return known[1]
        version = await self._kueue()
        if not version:
            return None
        queue = await self._read_queue(key, version)
        self._queues[key] = (now + _QUEUE_TTL_S, queue)
        return queue

    async def workloads(
        self, plan: Mapping[str, Any], jobs: tuple[AttemptJob, ...]
    ) -> tuple[KueueWorkload, ...]:
        """The Workloads of Jobs that are pending, growing or to be suspended."""
        suspend = bool(plan["spec"].get("suspend"))
        pending = [job for job in jobs if not job.finished and _needs_workload(job, suspend=suspend)]
        version = await self._kueue() if pending else ""
        if not version:
            return ()
        path = f"/apis/{_KUEUE}/{version}/namespaces/{plan['metadata']['namespace']}/workloads"
        uids = [job.uid for job in pending if job.kind == "Job"]  # other carriers are known by name only
        selector = f"{_JOB_UID} in ({','.join(uids)})" if len(uids) == len(pending) else ""
        carriers = {(job.kind, job.name) for job in pending}
        found = [raw async for raw in self._kube.every(path, labelSelector=selector)]
        return tuple(KueueWorkload.of(raw) for raw in found if owners_of(raw) & carriers)

    async def activate(self, namespace: str, name: str, *, active: bool) -> None:
        """Set a Workload's spec.active."""
        await self._kube.patch_workload(await self._kueue(), namespace, name, active=active)

    async def _kueue(self) -> str:
        """The preferred version of Kueue's API; empty without Kueue."""
        version, expires = self._version
        if time.monotonic() < expires:
            return version
        group = await self._get(f"/apis/{_KUEUE}")
        version = preferred_version(group)
        self._version = (version, time.monotonic() + (_QUEUE_TTL_S if version else _NO_KUEUE_TTL_S))
        return version

    async def _read_queue(self, key: Key, version: str) -> Queue:
        """A missing queue counts as one without limits: Kueue reports what is wrong with it."""
        root = f"/apis/{_KUEUE}/{version}"
        local = await self._get(f"{root}/namespaces/{key[0]}/localqueues/{key[1]}")
        name = cluster_queue_of(local)
        cluster_queue = await self._get(f"{root}/clusterqueues/{name}") if name else None
        if cluster_queue is None:
            return Queue(name=key[1])
        levels: tuple[str, ...] = ()
        for flavor in flavors_of(cluster_queue):
            topology_name = topology_of(await self._get(f"{root}/resourceflavors/{flavor}"))
            topology = await self._get(f"{root}/topologies/{topology_name}") if topology_name else None
            levels = levels_of(topology) if topology else ()
            if not levels:
                break  # Kueue rejects a topology request if one flavor of the queue has no topology
        nominal = gpus_of(cluster_queue, borrows=False)
        return Queue(
            name=key[1],
            gpus=gpus_of(cluster_queue),
            nominal_gpus=nominal,
            levels=levels,
            part=part_of(cluster_queue),
        )

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


def _is_over(plan: Mapping[str, Any]) -> bool:
    """Whether the plan has ended, and its spec has not changed since."""
    status = plan.get("status") or {}
    return bool(status) and is_observed(plan) and state_of(status).ended


def _needs_workload(job: AttemptJob, *, suspend: bool) -> bool:
    return bool(job.uid) and (job.suspended or suspend or job.ready < job.parallelism)
