"""The pods of one plan and the Warning Events about them, read only while some of them are not healthy."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rightsizer_api.untrusted_text import printable
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.values import names
from rightsizer_operator.values.conditions import state_of
from rightsizer_operator.values.metadata import Key, event_time, owner_name, owner_uids
from rightsizer_operator.values.pods import START_S, Pod, PodPhase
from rightsizer_operator.values.snapshot import AttemptJob, ChildWarning


class PlanPods:
    """Reads a plan's pods and Events."""

    def __init__(
        self,
        kube: KubeClient,
        cache: Cache,
        *,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._kube, self._cache, self._now = kube, cache, now

    async def unhealthy(self, key: Key, plan: Mapping[str, Any]) -> tuple[Pod, ...]:
        """The plan's pods if some of them do not run or have just finished; empty otherwise."""
        status, queued = plan.get("status") or {}, names.QUEUE_LABEL in plan["metadata"].get("labels", {})
        jobs = self._cache.owned(key)
        if not any(self._needs_pods(job, status, queued=queued) for job in jobs):
            return ()
        own = {job.uid for job in jobs}
        store = names.rendezvous_name(key[1])
        pods = await self._kube.list("Pod", key[0], f"{names.LABEL_PLAN}={key[1]}")
        return tuple(
            Pod.of(raw) for raw in pods if owner_uids(raw) & own or owner_name(raw, "ReplicaSet") == store
        )

    async def warnings(self, key: Key, pods: Sequence[Pod]) -> tuple[ChildWarning, ...]:
        """The newest Warning Event about what keeps pods from running, if the pods themselves do not tell."""
        jobs = [job for job in self._cache.owned(key) if self._waits(job)]
        if not jobs or any(
            pod.phase == PodPhase.PENDING and (pod.unschedulable or pod.waiting) for pod in pods
        ):
            return ()
        job, store = jobs[-1], names.rendezvous_name(key[1])
        workers = [pod for pod in pods if pod.role == names.WORKER and pod.attempt == job.attempt]
        owner = (job.kind, job.name, "") if job.expected else ("Job", job.job_name, job.uid)
        lacking = [owner] if _open(workers) < job.parallelism else []
        if not _open([pod for pod in pods if pod.role == names.RENDEZVOUS]):
            lacking.append(("ReplicaSet", store, ""))
        lacking += [("Pod", pod.name, pod.uid) for pod in pods if pod.phase == PodPhase.PENDING and pod.node][
            :1
        ]
        found = [await self._newest(key[0], *each) for each in lacking]
        return tuple(warning for warning in found if warning is not None)

    def _needs_pods(self, job: AttemptJob, status: Mapping[str, Any], *, queued: bool) -> bool:
        """Whether the pods add to this Job's own status."""
        if job.finished:
            return state_of(status) != job.finished
        gated = queued and job.is_active and job.ready < job.parallelism
        return bool(job.terminating or job.failed or gated or self._waits(job))

    def _waits(self, job: AttemptJob) -> bool:
        """Whether pods are missing and have had the time that a start takes: a launch costs no lists."""
        if job.expected and job.is_active:
            return True
        can_meet = self._cache.is_rendezvous_ready((job.namespace, job.plan))
        if not job.is_active or (job.ready >= job.parallelism and can_meet) or job.started_at is None:
            return False
        return (self._now() - job.started_at).total_seconds() >= START_S

    async def _newest(self, namespace: str, kind: str, name: str, uid: str) -> ChildWarning | None:
        selector = f"type=Warning,involvedObject.kind={kind},involvedObject.name={name}"
        if uid:
            selector += f",involvedObject.uid={uid}"
        path = f"/api/v1/namespaces/{namespace}/events"
        try:
            events = [event async for event in self._kube.every(path, fieldSelector=selector)]
        except ApiError as error:
            if error.status in (403, 404):  # the reason stays unknown
                return None
            raise
        newest = max(events, key=event_time, default=None)
        if newest is None:
            return None
        return ChildWarning(
            kind=kind,
            name=name,
            reason=printable(newest.get("reason", "")),
            message=printable(newest.get("message", "")),
        )


def _open(pods: Sequence[Pod]) -> int:
    return sum(pod.phase not in {PodPhase.SUCCEEDED, PodPhase.FAILED} for pod in pods)
