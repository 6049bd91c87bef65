"""The controller: watch events queue plans, workers reconcile them, failures are retried with back-off."""

import asyncio
import contextlib
import datetime as dt
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

from rightsizer_api.plan import GROUP, VERSION
from rightsizer_api.state import ConditionType, State
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.cluster.client import ApiError, KubeClient, plans_path
from rightsizer_operator.cluster.lookups import ClusterReader
from rightsizer_operator.cluster.plan_pods import PlanPods
from rightsizer_operator.cluster.relist import relist
from rightsizer_operator.measure.gauges import plan_gauges, plan_info
from rightsizer_operator.measure.resize_advisor import Advisor
from rightsizer_operator.reconcile.reconcile import faulted, reconcile
from rightsizer_operator.runtime.action_executor import ActionExecutor
from rightsizer_operator.runtime.at_once import all_of
from rightsizer_operator.runtime.events import EventRecorder
from rightsizer_operator.runtime.plan_metrics import Metrics
from rightsizer_operator.runtime.sizing import Sizing, sizing_lanes
from rightsizer_operator.runtime.worker import Worker
from rightsizer_operator.values.actions import Action, Apply, Requeue, SearchSize, batches
from rightsizer_operator.values.conditions import is_true, reason_of, state_of
from rightsizer_operator.values.metadata import Key, generation_of, is_observed, key_of, log_fields, plan_key
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.snapshot import AttemptJob, Rendezvous, Snapshot, is_completed

_LOG = logging.getLogger("rightsizer.operator")
_WORKERS = 16
_DEBOUNCE_S = 0.1
_BUG_RETRY_S = 5.0


class Controller:
    """All state is in memory and can be rebuilt: a restart loses nothing."""

    def __init__(
        self,
        kube: KubeClient,
        metrics: Metrics,
        settings: OperatorSettings,
        namespaces: tuple[str, ...],
        sizing: Sizing | None = None,
    ) -> None:
        self.cache = Cache()
        self.settings, self.advisor = settings, Advisor(settings)
        self.last_relist_s = time.monotonic()
        self._kube, self._metrics = kube, metrics
        self._namespaces = namespaces
        self._sizing = sizing or Sizing(sizing_lanes(settings.sizing_s), budget_s=settings.sizing_s)
        self._sizing.on_response = self.enqueue
        self._turns = Worker(metrics.queue.set, self.enqueue)
        self._debounce: asyncio.TimerHandle | None = None
        self.reader = ClusterReader(kube, self.cache, device_class=settings.device_class)
        self._pods = PlanPods(kube, self.cache)
        self._recorder = EventRecorder(kube, metrics)
        self._executor = ActionExecutor(
            kube,
            self.cache,
            self.reader,
            metrics,
            self._recorder,
            enqueue=self.enqueue,
            dry_run=settings.dry_run,
        )
        self._leading = asyncio.Event()

    @property
    def is_leader(self) -> bool:
        """Whether this replica reconciles."""
        return self._leading.is_set()

    # --- watch events ------------------------------------------------------

    def on_plan(self, raw: Mapping[str, Any], *, deleted: bool) -> None:
        """A plan was added, changed or deleted."""
        key = key_of(raw)
        if deleted:
            self._forget(key)
        elif self.cache.set_plan(raw):
            self.enqueue(key)

    def on_job(self, raw: Mapping[str, Any], *, deleted: bool) -> None:
        """A Job was added, changed or deleted. Freed GPUs wake the plans that wait for them."""
        key = plan_key(raw)
        freed = deleted or is_completed(raw)
        if deleted:
            self.cache.remove_job(raw)
        elif not self.cache.set_job(raw):
            return
        self.enqueue(key)
        if freed:
            self.requeue_waiting()

    def on_rendezvous(self, raw: Mapping[str, Any], *, deleted: bool) -> None:
        """A rendezvous store was added, changed or deleted."""
        key, store = plan_key(raw), Rendezvous.of(raw)
        if deleted:
            self.cache.remove_rendezvous(key, store)
        elif not self.cache.set_rendezvous(key, store):
            return
        self.enqueue(key)

    def on_node(self, raw: Mapping[str, Any], *, deleted: bool) -> None:
        """A node was added, changed or deleted."""
        if deleted:
            self.cache.remove_node(raw["metadata"]["name"])
        elif not self.cache.set_node(raw):
            return
        self.requeue_waiting()

    def enqueue(self, key: Key) -> None:
        """Queue a plan for a reconcile, with high priority if its spec has changed."""
        plan = self.cache.plans.get(key)
        if plan is not None and self._leading.is_set():
            self._turns.add(key, high=not is_observed(plan))

    def requeue_waiting(self) -> None:
        """Queue the plans that free GPUs or node changes may affect; bursts are debounced."""
        self.reader.invalidate()
        if self._debounce is None:
            self._debounce = asyncio.get_running_loop().call_later(_DEBOUNCE_S, self._requeue_waiting)

    def _requeue_waiting(self) -> None:
        self._debounce = None
        for key, plan in self.cache.plans.items():
            if state_of(plan.get("status") or {}).waits:
                self.enqueue(key)
        for key, jobs in self.cache.jobs.items():
            if any(
                job.is_active and (job.terminating or job.ready < job.parallelism) for job in jobs.values()
            ):
                self.enqueue(key)

    def _forget(self, key: Key) -> None:
        self.cache.remove_plan(key)
        self.advisor.forget(key)
        self._sizing.forget(key)
        self._turns.forget(key)
        self._executor.forget(key)
        self._metrics.forget(key)
        self.requeue_waiting()

    def close(self) -> None:
        """End the sizing processes."""
        self._sizing.close()

    @contextlib.contextmanager
    def faults(self, key: Key | None = None) -> Iterator[None]:
        """Log and count a fault of the operator inside, which must not end it."""
        try:
            yield
        except Exception:
            _LOG.exception("unexpected error", extra=log_fields(key) if key else None)
            self._metrics.faults.inc()

    # --- leadership and relists --------------------------------------------

    async def refresh(self) -> None:
        """Relist everything: on becoming leader and every `refresh_s`, in case a watch missed an event."""
        await self.reader.refresh_devices()
        before, devices = self.cache.keys(), self.cache.devices
        api = devices.api if devices else ""
        listing = await relist(self._kube, self._scopes(), claims_api=api, newest=self.cache.newest)
        for key in self.cache.replace_all(listing, before):
            self._forget(key)
        for key in self.cache.plans:
            self._set_gauges(key)
            self.enqueue(key)
        self.last_relist_s = time.monotonic()

    def _scopes(self) -> tuple[str, ...]:
        return tuple(f"/namespaces/{name}" for name in self._namespaces) or ("",)

    async def lead(self) -> None:
        """Reconcile until cancelled."""
        self._metrics.is_leader.set(1)
        self._leading.set()
        self._sizing.start()
        try:
            while not await self._try_refresh():  # an unavailable API server, a missing CRD
                await asyncio.sleep(1)
            async with asyncio.TaskGroup() as group:
                for _ in range(_WORKERS):
                    group.create_task(self._turns.run(self._process))
                group.create_task(self._relist_periodically())
                group.create_task(self._recorder.run())
        finally:
            self._leading.clear()
            self._metrics.is_leader.set(0)
            self._turns.clear()

    async def _relist_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.settings.refresh_s)
            await self._try_refresh()

    async def _try_refresh(self) -> bool:
        try:
            await self.refresh()
        except ApiError as error:
            _LOG.warning("relist failed: %s", error)
            if error.status == 404:  # the API server answers; it does not know plans
                self.last_relist_s = time.monotonic()
            return False
        return True

    async def serves_plans(self) -> bool:
        """Whether the API server has the plans' CustomResourceDefinition; ApiError if it does not say."""
        try:
            found = await self._kube.call("GET", f"/apis/{GROUP}/{VERSION}")
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(resource["name"] == "trainingplans" for resource in found["resources"])

    # --- one plan ----------------------------------------------------------

    async def _process(self, key: Key) -> None:
        """Reconcile a plan once; retry a failure with exponential back-off."""
        try:
            with self._metrics.reconcile_seconds.time():
                await self._reconcile(key)
        except ApiError as error:
            if error.status == 409 and key in self.cache.plans:
                await self._reread(key)
            wait_s = self._retry(key, at_least_s=error.retry_after_s)
            _LOG.warning("%s; retrying in %.1f s", error, wait_s, extra=log_fields(key))
        except Exception as error:  # a bug that one plan triggers must not stop the others
            _LOG.exception("unexpected error", extra=log_fields(key))
            await self._report_fault(key, error)
            self._retry(key, at_least_s=_BUG_RETRY_S)
        else:
            self._turns.succeeded(key)
            self._set_gauges(key)

    async def _report_fault(self, key: Key, error: Exception) -> None:
        """Count a fault and write it to the plan, as far as that can be done: the next try does it again."""
        self._metrics.faults.inc()
        plan = self.cache.plans.get(key)
        with self.faults(key):
            for action in faulted(self._snapshot(key, plan), error) if plan else ():
                await self._execute(key, action)
        self._set_gauges(key)

    def _retry(self, key: Key, *, at_least_s: float | None) -> float:
        """Requeue after a failure; the delay in seconds."""
        if key not in self.cache.plans:
            return 0.0
        self._metrics.failures.inc()
        return self._turns.retry(key, at_least_s=at_least_s)

    async def _reread(self, key: Key) -> None:
        try:
            self.cache.set_plan(await self._kube.call("GET", plans_path(*key)))
        except ApiError as error:
            if error.status == 404:
                self._forget(key)

    async def _reconcile(self, key: Key) -> None:
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        status = plan.get("status") or {}
        quota = None
        if not is_true(status, ConditionType.SIZED) or not is_observed(plan):
            await self.reader.refresh_pods()
            quota = await self.reader.quota(key)
        elif state_of(status).waits:
            await self.reader.refresh_pods()
        pods = await self._pods.unhealthy(key, plan)
        warnings = await self._pods.warnings(key, pods)
        allowed = await self.reader.allowance(key)
        queue = await self.reader.queue(plan)
        jobs = tuple(self.cache.jobs[key].values())
        workloads = await self.reader.workloads(plan, jobs) if queue else ()
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        # No await from the snapshot to `reserve`, so that two plans never claim the same GPUs.
        read = {"allowance": allowed, "queue": queue, "workloads": workloads, "warnings": warnings}
        snapshot = self._snapshot(key, plan, quota_gpus=quota, pods=pods, **read)
        actions = reconcile(snapshot, size=self._sizing.size_of(key))
        for action in actions:
            job = AttemptJob.within(action.child) if isinstance(action, Apply) else None
            if job is not None:
                self.cache.reserve(key, job)
        try:
            for batch in batches(actions):
                if key not in self.cache.plans:
                    return  # deleted meanwhile
                await all_of(*(self._execute(key, action) for action in batch))
                self._consume(key, snapshot, actions)  # the status, if it changed, is written first
        finally:
            self.cache.unreserve(key)
        self._consume(key, snapshot, actions)
        if any(isinstance(action, Apply) for action in actions):
            self._executor.forget(key)

    def _consume(self, key: Key, snapshot: Snapshot, actions: tuple[Action, ...]) -> None:
        """Drop the resize decision and the sizing that these actions follow from."""
        if any(isinstance(action, SearchSize) for action in actions):
            return  # both are looked at again with the answer
        self.advisor.consume(key, snapshot.decision)
        plan = self.cache.plans.get(key)
        if (
            plan is not None
            and reason_of(plan.get("status") or {}, ConditionType.SIZED) != State.SIZING_TOO_LONG
        ):
            self._sizing.forget(key)

    def _snapshot(self, key: Key, plan: Mapping[str, Any], **read: Any) -> Snapshot:
        return Snapshot(
            **read,
            plan=plan,
            inventory=self.cache.inventory(without=key),
            now=dt.datetime.now(dt.UTC),
            settings=self.settings,
            jobs=self.cache.owned(key),
            children=frozenset(self.cache.children[key]),
            rendezvous_ready=self.cache.is_rendezvous_ready(key),
            progress=self.advisor.progress(plan),
            decision=self.advisor.decision(plan),
            samples=self.advisor.samples(plan),
            missing_metrics=self.advisor.missing_counters(key),
            scrape_refusal=self.advisor.scrape_refusal(plan),
            sizing_since=self._sizing.since(key, generation_of(plan)),
            rejection=self._executor.rejection(key),
        )

    async def _execute(self, key: Key, action: Action) -> None:
        match action:
            case SearchSize():
                generation = generation_of(self.cache.plans[key])
                self._sizing.ask(key, generation, action.size_request)
            case Requeue():
                self._turns.after(key, action.after_s)
            case _:
                await self._executor.execute(key, action)

    def _set_gauges(self, key: Key) -> None:
        """Update the plan's gauges."""
        plan = self.cache.plans.get(key)
        if plan is None:
            return
        with self.faults(key):
            state = state_of(plan.get("status") or {})
            self._metrics.set_plan(key, state, plan_gauges(plan), plan_info(plan))
