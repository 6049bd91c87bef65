"""The operator's memory of what plans said of themselves, and the judgements that follow from it.

Nothing here need survive a restart: a new operator waits until it has seen a whole window.
"""

import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from rightsizer.domain.reading import Reading
from rightsizer.errors import RightsizerError
from rightsizer.resize.policy import window_s
from rightsizer.resize.types import Decision, Scaling
from rightsizer.values import immutable
from rightsizer_api import validate
from rightsizer_api.placeholders import layout_of
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.quantities import parse_time
from rightsizer_api.resources import ElasticityMode
from rightsizer_operator.cluster.cache import Cache
from rightsizer_operator.measure.gpu_counters import Counters
from rightsizer_operator.measure.samples import Sample, extended, joined, reading_of
from rightsizer_operator.reconcile.resize_advice import Around, advise, limits_of, unmeasured
from rightsizer_operator.reconcile.size import RunningAttempt, node_requirements, scaling_of
from rightsizer_operator.values.conditions import reason_of
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.settings import Settings
from rightsizer_operator.values.snapshot import Key, Progress

__all__ = ["Advisor"]

_LOG = logging.getLogger("rightsizer.operator")
_WAITING = ("WaitingForGPUs", "Queued")


@immutable
class _Curve:
    """How a plan scales, for as long as its spec and layout stay."""

    of: tuple[Any, ...]
    scaling: Scaling


class Advisor:
    """Windows of samples, scaling curves and fresh judgements, by plan."""

    def __init__(self, settings: Settings) -> None:
        self.progress: dict[Key, Progress] = {}
        self._settings = settings
        self._samples: dict[Key, tuple[Sample, ...]] = {}
        self._curves: dict[Key, _Curve] = {}
        self._decisions: dict[Key, Decision] = {}
        self._judged_at: dict[Key, float] = {}
        self._counters = Counters()

    def heard(self, key: Key, said: Progress | None, *, at_s: float) -> None:
        """What a plan's workers said; None: none of them answered."""
        if said is None:
            self.progress.pop(key, None)
            return
        self.progress[key] = said
        keep_s = 2 * (self._settings.window_s + self._settings.warm_up_s)
        before = self._samples.get(key, ())
        self._samples[key] = extended(before, Sample(at_s=at_s, said=said), keep_s=keep_s)

    def counted(self, counters: Counters) -> None:
        """What the GPUs' counters show, of every plan that runs."""
        self._counters = counters

    def uncounted(self, key: Key) -> str:
        """Why a plan's counters are not known, though they should be; empty if they are."""
        return self._counters.lack(key, now_s=time.monotonic(), every_s=self._settings.decide_s)

    def forget(self, key: Key) -> None:
        """The plan is gone, or does not run."""
        for memory in (self.progress, self._samples, self._curves, self._decisions, self._judged_at):
            memory.pop(key, None)

    def take(self, key: Key) -> Decision | None:
        """A judgement that nobody has acted on yet; it is given once."""
        return self._decisions.pop(key, None)

    def question(self, key: Key, cache: Cache, *, now_s: float) -> Callable[[], None] | None:
        """What is to be worked out about a plan now, elsewhere than in the loop; None: nothing yet."""
        plan, samples = cache.plans.get(key), self._samples.get(key, ())
        if (
            plan is None
            or not samples
            or now_s - self._judged_at.get(key, samples[0].at_s) < self._settings.decide_s
        ):
            return None
        self._judged_at[key] = now_s
        case = _Question(
            plan=plan,
            key=key,
            inventory=cache.inventory(without=key),
            pod_gpus=max((job.gpus_per_pod for job in cache.owned(key) if job.is_active), default=0) or 1,
            samples=samples,
            counters=self._counters.readings.get(key),
            uncounted=self.uncounted(key),
            now_s=now_s,
            others=_others(plan, key, cache),
        )
        return lambda: self._work_out(case)

    def _work_out(self, asked: "_Question") -> None:
        try:
            decision = self._judged(asked)
        except RightsizerError as error:
            _LOG.warning("%s/%s: cannot be judged: %s", *asked.key, error)
            return
        except Exception:  # a fault of ours in one plan must not stop all the others
            _LOG.exception("%s/%s: a fault in judging", *asked.key)
            return
        if decision is not None:
            self._decisions[asked.key] = decision

    def _judged(self, asked: "_Question") -> Decision | None:
        plan = validate({name: value for name, value in asked.plan.items() if name != "status"})
        status: Mapping[str, Any] = asked.plan.get("status") or {}
        if plan.spec.elasticity.mode is ElasticityMode.OFF or not {"sizing", "attempt"} <= status.keys():
            return None
        if asked.uncounted:
            return unmeasured(status, asked.uncounted)
        now, settings = dt.datetime.now(dt.UTC), self._settings
        scaling = self._scaling(asked, plan, status)
        if scaling is None:
            return None
        around = Around(
            free_gpus=asked.inventory.free(
                node_requirements(plan), status["sizing"]["gpuType"], asked.pod_gpus
            ),
            others_waiting=asked.others,
            trained_s=asked.now_s - asked.samples[0].at_s,
        )
        wanted_s = window_s(limits_of(plan, status, around=around, settings=settings))
        reading = asked.reading(wanted_s, settings.measure_s)
        return advise(
            plan, status, reading=reading, around=around, scaling=scaling, settings=settings, now=now
        )

    def _scaling(self, asked: "_Question", plan: TrainingPlan, status: Mapping[str, Any]) -> Scaling | None:
        """The plan's curve, kept as long as its spec and its layout stay: it costs a search."""
        sizing, layout = status["sizing"], layout_of(status["attempt"]["layout"])
        metadata = asked.plan["metadata"]
        of = (metadata["uid"], metadata["generation"], layout)
        known = self._curves.get(asked.key)
        if known is not None and known.of == of:
            return known.scaling
        scaling = scaling_of(
            plan,
            RunningAttempt(
                layout=layout,
                batch=sizing["globalBatchSequences"],
                elastic=True,
                gpu_type=sizing["gpuType"],
            ),
            inventory=asked.inventory,
            created=parse_time(metadata["creationTimestamp"]) or dt.datetime.now(dt.UTC),
            inter_gbps=self._settings.inter_node_gbps,
        )
        if scaling is not None:
            self._curves[asked.key] = _Curve(of=of, scaling=scaling)
        return scaling


@immutable
class _Question:
    """One plan as it was when it was asked about."""

    plan: Mapping[str, Any]
    key: Key
    inventory: Inventory
    pod_gpus: int
    samples: tuple[Sample, ...]
    counters: Reading | None
    uncounted: str
    now_s: float
    others: bool

    def reading(self, window_s: float, every_s: float) -> Reading:
        """Its last window."""
        own = reading_of(self.samples, now_s=self.now_s, window_s=window_s, every_s=every_s)
        return joined(own, self.counters)


def _others(plan: Mapping[str, Any], key: Key, cache: Cache) -> bool:
    """Whether another plan waits for GPUs, or somebody else for such as this plan has."""
    kind = ((plan.get("status") or {}).get("sizing") or {}).get("gpuType", "")
    return bool(kind in cache.wanted) or any(
        reason_of(other.get("status") or {}, "Ready") in _WAITING
        for name, other in cache.plans.items()
        if name != key
    )
