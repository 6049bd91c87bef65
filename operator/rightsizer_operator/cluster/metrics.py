"""The operator's own metrics; everything that can be counted is there from the start, at zero."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rightsizer_operator.reconcile.persisted import CAUSES

__all__ = ["STATES", "Metrics", "PlanGauges"]

STATES = (
    "New",
    "Invalid",
    "NoPlan",
    "NoSuchGPUs",
    "InsufficientGPUs",
    "DeadlinePassed",
    "WaitingForGPUs",
    "Queued",
    "Refused",
    "Finishing",
    "Suspended",
    "Starting",
    "Running",
    "Recovering",
    "Resizing",
    "Relayout",
    "Complete",
    "Failed",
)
"""Every state of a plan: the reasons of its Ready condition."""
_METHODS = ("GET", "POST", "PATCH", "DELETE")
_ERRORS = ("0", "403", "404", "409", "422", "429", "500", "503")
_PLAN_GAUGES = {
    "gpus": "GPUs that the plan is sized to",
    "gpus_saved": "GPUs of spec.resources.maxGPUs that the plan does not take",
    "predicted_tokens_per_second": "Throughput as predicted",
    "measured_tokens_per_second": "Throughput as the workers report it",
    "margin_seconds": "Deadline minus expected end; negative: late",
    "recommended_gpus": "GPUs that its measured pace asks for",
    "attempt": "Number of the current attempt",
    "restarts": "Restarts of workers within the attempt",
}

PlanGauges = Mapping[str, float]
_INFO = ("layout", "gpu_type")


class Metrics(Collector):
    """Counters of what the operator does, and gauges of every plan read when somebody asks."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._plans: dict[tuple[str, str], tuple[str, PlanGauges, Mapping[str, str]]] = {}
        prefix = "rightsizer_operator_"
        self.reconcile_seconds = Histogram(
            f"{prefix}reconcile_seconds", "Time to bring one plan up to date", registry=self.registry
        )
        self._requests = Counter(
            f"{prefix}api_requests", "Requests to the API server", ["method"], registry=self.registry
        )
        self._errors = Counter(
            f"{prefix}api_errors",
            "Requests that failed, by HTTP status; 0: not reached",
            ["code"],
            registry=self.registry,
        )
        self.failures = Counter(
            f"{prefix}reconcile_failures", "Plans that had to be tried again", registry=self.registry
        )
        self.untold = Counter(
            f"{prefix}events_dropped", "Events that could not be written", registry=self.registry
        )
        self.launches = Counter(f"{prefix}launches", "Jobs created", registry=self.registry)
        self._resizes = Counter(
            f"{prefix}resizes", "Changes of size or layout, by cause", ["cause"], registry=self.registry
        )
        self.leads = Gauge(f"{prefix}leads", "1 where this replica acts", registry=self.registry)
        self.queue = Gauge(f"{prefix}queue", "Plans that wait to be looked at", registry=self.registry)
        for method in _METHODS:
            self._requests.labels(method)
        for code in _ERRORS:
            self._errors.labels(code)
        for cause in CAUSES:
            self._resizes.labels(cause)
        self.registry.register(self)

    def requested(self, method: str, status: int) -> None:
        """Count one request."""
        self._requests.labels(method).inc()
        if status == 0 or status >= 400:
            self._errors.labels(str(status)).inc()

    def resized(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count the resizes that a new status has and the old one had not."""
        known = [(row["at"], row.get("cause")) for row in before.get("resizes") or ()]
        for row in after.get("resizes") or ():
            if (row["at"], row.get("cause")) not in known:
                self._resizes.labels(row.get("cause", "Plan")).inc()

    def plan(
        self, key: tuple[str, str], state: str, facts: PlanGauges, info: Mapping[str, str] | None = None
    ) -> None:
        """What there is to say of a plan from now on, in numbers and, once it has a size, in words."""
        self._plans[key] = (state, facts, info or {})

    def forget(self, key: tuple[str, str]) -> None:
        """The plan is gone."""
        self._plans.pop(key, None)

    def collect(self) -> Iterable[Metric]:
        """The plans' gauges."""
        states = GaugeMetricFamily("rightsizer_plans", "Plans by state", labels=["state"])
        counts = dict.fromkeys(STATES, 0)
        for state, *_ in self._plans.values():
            counts[state] = counts.get(state, 0) + 1
        for state, count in counts.items():
            states.add_metric([state], count)
        yield states
        for name, words in _PLAN_GAUGES.items():
            family = GaugeMetricFamily(f"rightsizer_plan_{name}", words, labels=["namespace", "plan"])
            for (namespace, plan), (_, facts, _) in self._plans.items():
                if name in facts:
                    family.add_metric([namespace, plan], facts[name])
            yield family
        told = GaugeMetricFamily(
            "rightsizer_plan_info", "1; how the work is split, in words", labels=["namespace", "plan", *_INFO]
        )
        for key, (*_, info) in self._plans.items():
            if info:
                told.add_metric([*key, *(info[name] for name in _INFO)], 1)
        yield told

    def describe(self) -> Iterable[Metric]:
        """What `collect` gives, empty: who asks for others by name does not pay for thousands of plans."""
        yield GaugeMetricFamily("rightsizer_plans", "")
        for name in (*_PLAN_GAUGES, "info"):
            yield GaugeMetricFamily(f"rightsizer_plan_{name}", "")

    def text(self, names: Collection[str] = ()) -> bytes:
        """As Prometheus reads it; all, or the metrics of these names."""
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)
