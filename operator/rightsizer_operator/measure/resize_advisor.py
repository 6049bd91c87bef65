"""The operator's marks of running plans, and the resize decisions from them.

A few marks of each plan are in its status, from which a new operator continues. A memory belongs to one plan
by UID, so a plan that is deleted and created again starts without one. A decision and a scaling curve belong
to one generation of the plan's spec.
"""

import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rightsizer_api.plan import TrainingPlan
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_api.spec.resources import ElasticityMode
from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_engine.errors import RightsizerError
from rightsizer_engine.resize.policy import window_s
from rightsizer_engine.resize.types import Decision, Scaling
from rightsizer_engine.values import immutable
from rightsizer_launch.running.counters import with_gpu_counters
from rightsizer_launch.running.limits import restart_s
from rightsizer_launch.running.marks import Mark, pruned, start_durations_s, trained_s
from rightsizer_launch.running.size_history import visits_of
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.measure.samples import (
    mark_of,
    marks_of_samples,
    newest_reading,
    samples_of,
)
from rightsizer_operator.reconcile.parsed_plan import parsed_plan
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.resize_advice import (
    ResizeContext,
    advise,
    launches_of,
    layout_before,
    limits_of_plan,
    recorded_starts_s,
    size_of,
    unmeasured,
)
from rightsizer_operator.reconcile.size import node_requirements, scaling_of
from rightsizer_operator.reconcile.sizing_response import RunningAttempt
from rightsizer_operator.values.attempt import AttemptRecord
from rightsizer_operator.values.conditions import state_of
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.metadata import Key, created_at, generation_of, key_of, log_fields
from rightsizer_operator.values.settings import OperatorSettings
from rightsizer_operator.values.sized import SizedPlan, sized_gpu_type
from rightsizer_operator.values.snapshot import ReportedProgress

_LOG = logging.getLogger("rightsizer.operator")


@dataclass(slots=True)
class _Memory:
    """One plan, by UID. `decision` and `curve` are stored with what they hold for."""

    uid: str
    keep_s: float
    marks: tuple[Mark, ...] = ()
    progress: ReportedProgress | None = None
    refusal: str = ""
    decided_at_s: float | None = None
    decision: tuple[int, Decision] | None = None
    curve: tuple[tuple[Any, ...], Scaling] | None = None


class Advisor:
    """Marks, scaling curves and pending decisions, by plan.

    `monotonic` and `unix` are clocks; `scaling` predicts other sizes; `advise` decides.
    """

    def __init__(
        self,
        settings: OperatorSettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix: Callable[[], float] = time.time,
        scaling: Callable[..., Scaling | None] = scaling_of,
        advise: Callable[..., Decision] = advise,
    ) -> None:
        self._settings = settings
        self._monotonic, self._unix = monotonic, unix
        self._scaling_of, self._advise = scaling, advise
        self._began_s = unix()
        self._memories: dict[Key, _Memory] = {}
        self._counters = Counters()

    @property
    def plans(self) -> frozenset[Key]:
        """Plans that anything is remembered of."""
        return frozenset(self._memories)

    def record(
        self, plan: Mapping[str, Any], progress: ReportedProgress | None, *, at_s: float, refusal: str = ""
    ) -> None:
        """A scrape of a plan's workers; None: none answered, or `refusal` says why it was not read."""
        memory = self._known(plan)
        if memory is None:
            memory = self._memories[key_of(plan)] = self._recalled(plan, at_s=at_s)
        memory.progress, memory.refusal = progress, refusal
        if progress is not None:
            new = mark_of(
                progress,
                attempt=_attempt(plan),
                at_s=at_s,
                unix_s=self._unix(),
                every_s=self._settings.measure_s,
            )
            memory.marks = pruned((*memory.marks, new), keep_s=memory.keep_s)

    def _recalled(self, plan: Mapping[str, Any], *, at_s: float) -> _Memory:
        """A new memory, with the marks that another operator left in the plan's status."""
        samples = (plan.get("status") or {}).get("samples", ())
        recalled = marks_of_samples(samples, ahead_s=self._unix() - at_s)
        marks = tuple(mark for mark in recalled if mark.time_s <= at_s)
        span_s = at_s - marks[0].time_s if marks else 0.0
        return _Memory(
            uid=plan["metadata"]["uid"],
            keep_s=max(span_s, self._keep_s(self._settings.window_s)),
            marks=marks,
            decided_at_s=at_s if marks else None,
        )

    def _keep_s(self, window_s: float) -> float:
        """Seconds to keep marks for windows of this length, the warm-up and a later start of the window."""
        return 2.0 * (window_s + self._settings.warm_up_s)

    def samples(self, plan: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        """The marks of a plan that go into its status."""
        memory = self._known(plan)
        if memory is None:
            return ()
        ahead_s = self._unix() - self._monotonic()
        return samples_of(memory.marks, keep_s=memory.keep_s, ahead_s=ahead_s)

    def progress(self, plan: Mapping[str, Any]) -> ReportedProgress | None:
        """The newest scrape of a plan."""
        memory = self._known(plan)
        return memory.progress if memory else None

    def scrape_refusal(self, plan: Mapping[str, Any]) -> str:
        """The reason why the newest scrape was not read; empty if it was, or there was none."""
        memory = self._known(plan)
        return memory.refusal if memory else ""

    def set_counters(self, counters: Counters) -> None:
        """Store the newest GPU counters of all running plans."""
        self._counters = counters

    def counters(self, key: Key) -> Reading | Missing | None:
        """A plan's GPU counters, or why they are missing; None if none are expected."""
        return self._counters.reading(key, now_s=self._monotonic(), every_s=self._settings.decide_s)

    def missing_counters(self, key: Key) -> Missing | None:
        """Why a plan's GPU counters are missing; None if they are not, or none are expected."""
        counters = self.counters(key)
        return counters if isinstance(counters, Missing) else None

    def forget(self, key: Key) -> None:
        """The plan was deleted, or does not run."""
        self._memories.pop(key, None)

    def decision(self, plan: Mapping[str, Any]) -> Decision | None:
        """The pending decision about this generation of a plan."""
        memory = self._known(plan)
        if memory is None or memory.decision is None:
            return None
        generation, decision = memory.decision
        return decision if generation == generation_of(plan) else None

    def consume(self, key: Key, decision: Decision | None) -> None:
        """Drop a decision once the status that follows from it is written. A newer one stays."""
        memory = self._memories.get(key)
        if memory is not None and memory.decision is not None and memory.decision[1] is decision:
            memory.decision = None

    def due_work(self, key: Key, cache: Cache, *, now_s: float) -> Callable[[], None] | None:
        """The work of a decision that is due, for a thread; None: no decision is due."""
        plan = cache.plans.get(key)
        memory = self._known(plan) if plan is not None else None
        if plan is None or memory is None or not memory.marks:
            return None
        last_s = memory.marks[0].time_s if memory.decided_at_s is None else memory.decided_at_s
        if now_s - last_s < self._settings.decide_s:
            return None
        memory.decided_at_s = now_s
        request = _DecisionRequest(
            plan=plan,
            key=key,
            inventory=cache.inventory(without=key),
            pod_gpus=max((job.gpus_per_pod for job in cache.owned(key) if job.is_active), default=0) or 1,
            marks=memory.marks,
            counters=self.counters(key),
            now_s=now_s,
            unix_s=self._unix(),
            others_waiting=_others_wait(plan, key, cache),
        )
        return lambda: self._respond(request, memory)

    def _known(self, plan: Mapping[str, Any]) -> _Memory | None:
        memory = self._memories.get(key_of(plan))
        return memory if memory is not None and memory.uid == plan["metadata"]["uid"] else None

    def _respond(self, request: "_DecisionRequest", memory: _Memory) -> None:
        try:
            decision = self._decide(request, memory)
        except RightsizerError as error:
            _LOG.warning("no resize decision: %s", error, extra=log_fields(request.key))
            return
        except Exception:  # a fault of ours in one plan must not stop all the others
            _LOG.exception("a fault in a resize decision", extra=log_fields(request.key))
            return
        if decision is not None:
            memory.decision = (generation_of(request.plan), decision)

    def _decide(self, request: "_DecisionRequest", memory: _Memory) -> Decision | None:
        resolved, status = parsed_plan(request.plan), PersistedStatus.of(request.plan.get("status") or {})
        plan = resolved.plan
        if plan.spec.resize_mode is ElasticityMode.OFF or status.sized is None or status.attempt is None:
            return None
        context = self._context(request, plan, status)
        needed_s = window_s(limits_of_plan(plan, status, context=context, settings=self._settings))
        memory.keep_s = self._keep_s(needed_s)
        if isinstance(request.counters, Missing):
            return unmeasured(status, request.counters)
        scaling = self._scaling(request, memory, resolved, status.sized)
        if scaling is None:
            return None
        own = newest_reading(
            request.marks,
            now_s=request.now_s,
            window_s=needed_s,
            stall_s=self._settings.window_s,
            warm_up_s=self._settings.warm_up_s,
        )
        return self._advise(
            resolved,
            status,
            reading=with_gpu_counters(own, request.counters),
            context=context,
            scaling=scaling,
            settings=self._settings,
            now=dt.datetime.fromtimestamp(request.unix_s, dt.UTC),
        )

    def _context(
        self, request: "_DecisionRequest", plan: TrainingPlan, status: PersistedStatus
    ) -> ResizeContext:
        """Free GPUs, demand, training time and restart price.

        Launches before this operator began are left out: their first step may be missing from the marks.
        """
        ahead_s = request.unix_s - request.now_s
        watched = [unix_s - ahead_s for unix_s in launches_of(status) if unix_s >= self._began_s]
        starts = (
            *recorded_starts_s(status, until_s=self._began_s),
            *start_durations_s(request.marks, watched),
        )
        sized = size_of(status)
        room = request.inventory.free(node_requirements(plan), sized.gpu_type, request.pod_gpus)
        return ResizeContext(
            free_gpus=max(0, room - sized.gpus),
            others_waiting=request.others_waiting,
            trained_s=trained_s(request.marks, now_s=request.now_s),
            restart_s=restart_s(starts, prior_s=self._settings.restart_s),
            visited=visits_of(
                request.marks, layout=lambda mark: layout_before(status, mark.time_s + ahead_s)
            ),
        )

    def _scaling(
        self, request: "_DecisionRequest", memory: _Memory, resolved: ResolvedPlan, sized: SizedPlan
    ) -> Scaling | None:
        """The plan's curve, cached while its spec and layout stay: it costs a search."""
        holds_for = (generation_of(request.plan), sized.layout)
        if memory.curve is not None and memory.curve[0] == holds_for:
            return memory.curve[1]
        scaling = self._scaling_of(
            resolved,
            RunningAttempt(
                layout=sized.layout, batch=sized.batch_sequences, elastic=True, gpu_type=sized.gpu_type
            ),
            inventory=request.inventory,
            created=created_at(request.plan) or dt.datetime.now(dt.UTC),
            inter_gbps=self._settings.inter_node_gbps,
        )
        if scaling is not None:
            memory.curve = (holds_for, scaling)
        return scaling


@immutable
class _DecisionRequest:
    """One plan and its measurements at the time of a decision. `now_s` is monotonic."""

    plan: Mapping[str, Any]
    key: Key
    inventory: Inventory
    pod_gpus: int
    marks: tuple[Mark, ...]
    counters: Reading | Missing | None
    now_s: float
    unix_s: float
    others_waiting: bool


def _attempt(plan: Mapping[str, Any]) -> int:
    attempt = AttemptRecord.of((plan.get("status") or {}).get("attempt"))
    return attempt.number if attempt else 0


def _others_wait(plan: Mapping[str, Any], key: Key, cache: Cache) -> bool:
    """Whether another plan or another workload waits for GPUs of this plan's type."""
    kind = _gpu_type(plan)
    return bool(kind in cache.wanted) or any(
        state_of(other.get("status") or {}).contends and _gpu_type(other) == kind
        for name, other in cache.plans.items()
        if name != key
    )


def _gpu_type(plan: Mapping[str, Any]) -> str:
    return sized_gpu_type(plan.get("status") or {})
