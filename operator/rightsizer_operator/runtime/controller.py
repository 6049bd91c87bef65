"""The loop: news comes in, plans are looked at one by one, decisions are carried out, failures wait."""

import asyncio
import datetime as dt
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError, KubeClient, plans_path
from rightsizer_operator.cluster.events import EventRecorder
from rightsizer_operator.cluster.lookups import ClusterReader
from rightsizer_operator.cluster.metrics import Metrics
from rightsizer_operator.cluster.relist import relist
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.reconcile.gauges import plan_gauges, plan_info
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.runtime.work_queue import WorkQueue
from rightsizer_operator.values import names
from rightsizer_operator.values.actions import (
    Action,
    Apply,
    Delete,
    EmitEvent,
    PatchJob,
    PatchStatus,
    PatchWorkload,
    Requeue,
    describe,
)
from rightsizer_operator.values.conditions import is_true, json_merge_patch, reason_of
from rightsizer_operator.values.names import LABEL_PLAN
from rightsizer_operator.values.settings import Settings
from rightsizer_operator.values.snapshot import AttemptJob, Key, Pod, Snapshot, owner_uids, plan_key

__all__ = ["Controller"]

_LOG = logging.getLogger("rightsizer.operator")
_WORKERS = 16
_WAKE_S = 0.1
_FIRST_RETRY_S, _LAST_RETRY_S, _FAULT_RETRY_S = 0.2, 60.0, 5.0
_REFUSALS = (400, 403, 409, 422)  # of a child: the API server, a policy or a quota says no
_WAITING = ("NoSuchGPUs", "InsufficientGPUs", "WaitingForGPUs")


class Controller:
    """Everything in memory; nothing that a restart may not lose."""

    def __init__(
        self, kube: KubeClient, metrics: Metrics, settings: Settings, namespaces: tuple[str, ...]
    ) -> None:
        self.cache = Cache()
        self.settings, self.advisor = settings, Advisor(settings)
        self.alive_at = time.monotonic()
        self._kube, self._metrics = kube, metrics
        self._namespaces = namespaces
        self._queue = WorkQueue(metrics.queue.set)
        self._recorder = EventRecorder(kube, metrics)
        self._failures: dict[Key, int] = {}
        self._refused: dict[Key, str] = {}
        self._woken: asyncio.TimerHandle | None = None
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self.around = ClusterReader(kube, self.cache)
        self._leads = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Whether this replica acts."""
        return self._leads.is_set()

    # --- news ------------------------------------------------------------

    def saw_plan(self, raw: Mapping[str, Any], *, gone: bool) -> None:
        """A plan was added, changed or deleted."""
        key = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if gone:
            self._forget(key)
        elif self.cache.saw_plan(raw):
            self.push(key)

    def saw_job(self, raw: Mapping[str, Any], *, gone: bool) -> None:
        """A Job was added, changed or deleted; GPUs that become free may be waited for."""
        key = plan_key(raw)
        freed = gone or bool(raw.get("status", {}).get("completionTime"))
        if gone:
            self.cache.lost_job(raw)
        elif not self.cache.saw_job(raw):
            return
        self.push(key)
        if freed:
            self.wake_waiting()

    def saw_node(self, raw: Mapping[str, Any], *, gone: bool) -> None:
        """A node was added, changed or deleted."""
        if gone:
            self.cache.lost_node(raw["metadata"]["name"])
        elif not self.cache.saw_node(raw):
            return
        self.wake_waiting()

    def push(self, key: Key) -> None:
        """Look at this plan soon; being asked twice is being asked once."""
        plan = self.cache.plans.get(key)
        if plan is not None and self._leads.is_set():
            self._queue.push(key, asked=_outdated(plan))

    def wake_waiting(self) -> None:
        """What GPUs are free, or which nodes live, may have changed; much of such news is heard as one."""
        self.around.forget()
        if self._woken is None:
            self._woken = asyncio.get_running_loop().call_later(_WAKE_S, self._wake)

    def _wake(self) -> None:
        self._woken = None
        for key, plan in self.cache.plans.items():
            if reason_of(plan.get("status") or {}, "Ready") in _WAITING:
                self.push(key)
        for key, jobs in self.cache.jobs.items():
            if any(
                job.is_active and (job.terminating or job.ready < job.parallelism) for job in jobs.values()
            ):
                self.push(key)

    def _forget(self, key: Key) -> None:
        self.cache.lost_plan(key)
        self.advisor.forget(key)
        self._failures.pop(key, None)
        self._refused.pop(key, None)
        self._metrics.forget(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self.wake_waiting()

    # --- the whole world ------------------------------------------------------------

    async def refresh(self) -> None:
        """Read everything anew: at the start, on becoming leader, and now and then, whatever watches say."""
        before = self.cache.marks()
        found = await relist(self._kube, self._scopes())
        for key in self.cache.renew(found, before):
            self._forget(key)
        for key in self.cache.plans:
            self._tell(key)
            self.push(key)
        self.alive_at = time.monotonic()

    def _scopes(self) -> tuple[str, ...]:
        return tuple(f"/namespaces/{name}" for name in self._namespaces) or ("",)

    async def lead(self) -> None:
        """Act until cancelled."""
        self._metrics.leads.set(1)
        self._leads.set()
        try:
            while True:  # an API server that does not answer is waited for
                try:
                    await self.refresh()
                    break
                except ApiError as error:
                    _LOG.warning("cannot read the cluster: %s", error)
                    await asyncio.sleep(1)
            async with asyncio.TaskGroup() as group:
                for _ in range(_WORKERS):
                    group.create_task(self._work())
                group.create_task(self._keep_fresh())
                group.create_task(self._recorder.work())
        finally:
            self._leads.clear()
            self._metrics.leads.set(0)
            self._drop_queue()

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(self.settings.refresh_s)
            try:
                await self.refresh()
            except ApiError as error:
                _LOG.warning("cannot read the cluster: %s", error)

    def _drop_queue(self) -> None:
        self._queue.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # --- one plan ------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self._attend(key)
            finally:
                self._queue.done(key)

    async def _attend(self, key: Key) -> None:
        """One plan, once; what fails is tried again, later each time."""
        try:
            with self._metrics.reconcile_seconds.time():
                await self._reconcile(key)
        except ApiError as error:
            if error.status == 409 and key in self.cache.plans:
                await self._reread(key)
            wait_s = self._retry(key, at_least_s=error.retry_after_s or 0.0)
            _LOG.warning("%s/%s: %s; again in %.1f s", *key, error, wait_s)
        except Exception:  # a fault of ours in one plan must not stop all the others
            _LOG.exception("%s/%s: a fault of the operator", *key)
            self._retry(key, at_least_s=_FAULT_RETRY_S)
        else:
            self._failures.pop(key, None)
            self._tell(key)

    def _retry(self, key: Key, *, at_least_s: float) -> float:
        """Look again later, and later each time; after how many seconds."""
        if key not in self.cache.plans:
            return 0.0
        self._metrics.failures.inc()
        times = self._failures[key] = self._failures.get(key, 0) + 1
        most_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2.0 ** (times - 1))
        wait_s = max(at_least_s, most_s * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads retries
        self._later(key, wait_s)
        return wait_s

    async def _reread(self, key: Key) -> None:
        try:
            self.cache.saw_plan(await self._kube.call("GET", plans_path(*key)))
        except ApiError as error:
            if error.status == 404:
                self._forget(key)

    async def _reconcile(self, key: Key) -> None:
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        status = plan.get("status") or {}
        quota = None
        if not is_true(status, "Sized") or _outdated(plan):
            await self.around.count_others()
            quota = await self.around.quota(key)
        elif reason_of(status, "Ready") in _WAITING:
            await self.around.count_others()
        pods = await self._pods(key, plan)
        queue = await self.around.queue(plan)
        jobs = tuple(self.cache.jobs[key].values())
        workloads = await self.around.workloads(plan, jobs) if queue else ()
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        # From here to the reservation in `_carry_out` nothing is awaited: two plans never take the same GPUs.
        actions = reconcile(replace(self._snapshot(key, plan, pods, quota), queue=queue, workloads=workloads))
        for action in actions:
            if isinstance(action, Apply) and action.child["kind"] == "Job":
                self.cache.reserve(key, AttemptJob.of(action.child))
        try:
            for action in actions:
                if key not in self.cache.plans:
                    return  # deleted meanwhile
                await self._carry_out(key, action)
        finally:
            self.cache.unreserve(key)
        if any(isinstance(action, Apply) for action in actions):
            self._refused.pop(key, None)

    def _snapshot(
        self, key: Key, plan: Mapping[str, Any], pods: tuple[Pod, ...], quota: int | None
    ) -> Snapshot:
        return Snapshot(
            plan=plan,
            inventory=self.cache.inventory(without=key),
            now=dt.datetime.now(dt.UTC),
            settings=self.settings,
            jobs=self.cache.owned(key),
            pods=pods,
            supports=frozenset(self.cache.supports[key]),
            quota_gpus=quota,
            progress=self.advisor.progress.get(key),
            decision=self.advisor.take(key),
            uncounted=self.advisor.uncounted(key),
            refusal=self._refused.get(key, ""),
        )

    async def _carry_out(self, key: Key, action: Action) -> None:
        namespace, plan = key[0], self.cache.plans[key]
        if self.settings.dry_run:
            _LOG.info("%s/%s: would %s", *key, describe(action))
        match action:
            case PatchStatus():
                patch = json_merge_patch(plan.get("status") or {}, action.status)
                self._metrics.resized(plan.get("status") or {}, action.status)
                version = plan["metadata"]["resourceVersion"]
                self.cache.saw_plan(await self._kube.patch_status(*key, version, patch))
            case Apply():
                self._made(key, await self._apply(key, action.child), action.child["kind"])
            case PatchJob():
                made = await self._kube.patch_job(namespace, action.name, action.spec, action.notes)
                self.cache.saw_job(made)
            case PatchWorkload():
                await self.around.activate(namespace, action.name, active=action.active)
            case Delete():
                if action.force:
                    await self._kube.fail_pod(namespace, action.name, action.uid)
                await self._kube.delete(
                    action.kind, namespace, action.name, uid=action.uid, force=action.force
                )
                self.cache.supports[key].discard(f"{action.kind}/{action.name}")
            case EmitEvent():
                self._recorder.tell(plan, action)
            case Requeue():
                self._later(key, action.after_s)

    async def _apply(self, key: Key, child: Mapping[str, Any]) -> Mapping[str, Any]:
        """Apply a child; a refusal is remembered, for the status to tell."""
        try:
            return await self._kube.apply(child)
        except ApiError as error:
            if error.status in _REFUSALS:
                self._refused[key] = f"{child['kind']} {child['metadata']['name']}: {error.message}"
            raise

    def _made(self, key: Key, made: Mapping[str, Any], kind: str) -> None:
        if kind == "Job":
            self.cache.saw_job(made)
            if made.get("status"):
                self.push(key)  # it was there already, and its state is no news to any watch
            else:
                self._metrics.launches.inc()
        elif kind != "Secret":  # it belongs to an attempt, and the operator may not list Secrets
            self.cache.supports[key].add(f"{kind}/{made['metadata']['name']}")

    def _later(self, key: Key, after_s: float) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(after_s, self.push, key)

    async def _pods(self, key: Key, plan: Mapping[str, Any]) -> tuple[Pod, ...]:
        """The plan's workers, if anything is wrong with them, or they may be done, or a queue holds them."""
        status = plan.get("status") or {}
        failed = reason_of(status, "Ready") == "Failed"
        queued = names.QUEUE_LABEL in plan["metadata"].get("labels", {})
        lacking = queued or is_true(status, "Running")
        unwell = [
            job
            for job in self.cache.owned(key)
            if job.terminating
            or (job.failed and not job.finished)
            or (job.finished == "Failed" and not failed)
            or (lacking and job.is_active and job.ready < job.parallelism)
        ]
        if not unwell:
            return ()
        selector = f"{LABEL_PLAN}={key[1]},{names.LABEL_ROLE}={names.WORKER}"
        own = {job.uid for job in self.cache.owned(key)}
        return tuple(
            Pod.of(raw) for raw in await self._kube.children("Pod", key[0], selector) if owner_uids(raw) & own
        )

    def _tell(self, key: Key) -> None:
        """The plan's gauges."""
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        state = reason_of(plan.get("status") or {}, "Ready") or "New"
        self._metrics.plan(key, state, plan_gauges(plan), plan_info(plan))


def _outdated(plan: Mapping[str, Any]) -> bool:
    status = plan.get("status") or {}
    return int(status.get("observedGeneration", 0)) < int(plan["metadata"]["generation"])
