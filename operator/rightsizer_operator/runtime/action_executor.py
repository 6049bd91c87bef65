"""Carries out the actions of a reconcile, and keeps the cache up to date with their results."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError, KubeClient
from rightsizer_operator.cluster.lookups import ClusterReader
from rightsizer_operator.runtime.events import EventRecorder
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.values.actions import (
    Action,
    Apply,
    Delete,
    EmitEvent,
    PatchJob,
    PatchPlan,
    PatchStatus,
    PatchWorkload,
    describe,
)
from rightsizer_operator.values.carriers import remedy
from rightsizer_operator.values.conditions import json_merge_patch
from rightsizer_operator.values.metadata import Key, api_version_of, log_fields, version_of
from rightsizer_operator.values.snapshot import AttemptJob

_LOG = logging.getLogger("rightsizer.operator")
_REJECTIONS = (400, 403, 409, 422)  # of a child, by the API server, an admission policy or a quota


class ActionExecutor:
    """Writes through the client. `enqueue` is called with a plan that no watch event will bring back."""

    def __init__(
        self,
        kube: KubeClient,
        cache: Cache,
        reader: ClusterReader,
        metrics: Metrics,
        recorder: EventRecorder,
        *,
        enqueue: Callable[[Key], None],
        dry_run: bool,
    ) -> None:
        self._kube, self._cache, self._reader = kube, cache, reader
        self._metrics, self._recorder, self._enqueue, self._dry_run = metrics, recorder, enqueue, dry_run
        self._rejections: dict[Key, str] = {}

    def rejection(self, key: Key) -> str:
        """Why the API server rejected a child at the last try; empty if it did not."""
        return self._rejections.get(key, "")

    def forget(self, key: Key) -> None:
        """Drop the rejection: the children were accepted, or the plan was deleted."""
        self._rejections.pop(key, None)

    async def execute(self, key: Key, action: Action) -> None:
        """Carry out one action; ApiError if the API server does not."""
        namespace, plan = key[0], self._cache.plans[key]
        if self._dry_run:
            _LOG.info("dry run: %s", describe(action), extra=log_fields(key))
        match action:
            case PatchStatus():
                patch = json_merge_patch(plan.get("status") or {}, action.status)
                self._metrics.count_resizes(plan.get("status") or {}, action.status)
                version = str(version_of(plan))
                self._cache.set_plan(await self._kube.patch_status(*key, version, patch))
            case Apply():
                self._record_child(key, await self._apply(key, action.child), action.child["kind"])
            case PatchJob():
                await self._patch_job(namespace, action)
            case PatchPlan():
                self._cache.set_plan(await self._kube.patch_plan(*key, action.uid, action.spec))
            case PatchWorkload():
                await self._reader.activate(namespace, action.name, active=action.active)
            case Delete():
                if action.force:
                    await self._kube.fail_pod(namespace, action.name, action.uid)
                await self._kube.delete(
                    *(action.kind, namespace, action.name),
                    uid=action.uid,
                    version=action.version,
                    force=action.force,
                )
                self._cache.children[key].discard(f"{action.kind}/{action.name}")
            case EmitEvent():
                self._recorder.record(plan, action)

    async def _patch_job(self, namespace: str, action: PatchJob) -> None:
        patched = await self._kube.patch_job(
            action.kind, namespace, action.name, action.spec, action.annotations
        )
        if action.kind == "Job":
            self._cache.set_job(patched)

    async def _apply(self, key: Key, child: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply a child; keep a rejection for the plan's status."""
        try:
            return await self._kube.apply(child)
        except ApiError as error:
            what = f"{child['kind']} {child['metadata']['name']}"
            if error.status in _REJECTIONS:
                self._rejections[key] = f"{what}: {error.message}"
            if error.status == 404 and remedy(child["kind"]):
                self._rejections[key] = (
                    f"{what}: the cluster does not serve {api_version_of(child)}; {remedy(child['kind'])}"
                )
            raise

    def _record_child(self, key: Key, child: Mapping[str, Any], kind: str) -> None:
        if remedy(kind):
            job = AttemptJob.within(child)
            if job is not None:
                self._cache.store_job(key, job)
            existed = bool(child.get("status"))
            if existed or (job is not None and job.expected):
                self._enqueue(key)  # no watch event follows: nothing changed, or its Job is still to come
            if job is not None and not existed:
                self._metrics.launches.inc()
        elif kind != "Secret":  # it belongs to an attempt, and the operator may not list Secrets
            self._cache.children[key].add(f"{kind}/{child['metadata']['name']}")
