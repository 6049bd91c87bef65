"""The operator's own metrics. All label values that are known start at zero."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rightsizer_api.state import State
from rightsizer_operator.values.resize import ResizeCause, ResizeRecord

_METHODS = ("GET", "POST", "PATCH", "DELETE")
_ERRORS = ("0", "403", "404", "409", "422", "429", "500", "503")
_PLAN_GAUGES = {
    "gpus": "GPUs that the plan is sized to",
    "gpus_saved": "GPUs of spec.resources.maxGPUs that the plan does not use",
    "predicted_tokens_per_second": "Predicted throughput",
    "measured_tokens_per_second": "Throughput that the workers report",
    "margin_seconds": "Deadline minus expected end; negative: late",
    "recommended_gpus": "GPUs that the resize policy recommends",
    "attempt": "Number of the current attempt",
    "restarts": "Worker restarts in the current attempt",
}

PlanGauges = Mapping[str, float]
_INFO = ("layout", "gpu_type")


class Metrics(Collector):
    """The operator's counters, and gauges of all plans that are collected at each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._plans: dict[tuple[str, str], tuple[State, PlanGauges, Mapping[str, str]]] = {}
        prefix = "rightsizer_operator_"
        self.reconcile_seconds = Histogram(
            f"{prefix}reconcile_seconds", "Duration of a reconcile of one plan", registry=self.registry
        )
        self._requests = Counter(
            f"{prefix}api_requests", "Requests to the API server", ["method"], registry=self.registry
        )
        self._errors = Counter(
            f"{prefix}api_errors",
            "Failed requests to the API server, by HTTP status; 0: no response",
            ["code"],
            registry=self.registry,
        )
        self.failures = Counter(
            f"{prefix}reconcile_failures", "Reconciles that failed and are retried", registry=self.registry
        )
        self.faults = Counter(
            f"{prefix}faults", "Faults of the operator in one plan, which is retried", registry=self.registry
        )
        self.events_dropped = Counter(
            f"{prefix}events_dropped", "Events that could not be written", registry=self.registry
        )
        self.launches = Counter(f"{prefix}launches", "Jobs created", registry=self.registry)
        self._resizes = Counter(
            f"{prefix}resizes", "Changes of size or layout, by cause", ["cause"], registry=self.registry
        )
        self.is_leader = Gauge(f"{prefix}leads", "1 if this replica is the leader", registry=self.registry)
        self.queue = Gauge(f"{prefix}queue", "Plans in the work queue", registry=self.registry)
        for method in _METHODS:
            self._requests.labels(method)
        for code in _ERRORS:
            self._errors.labels(code)
        for cause in ResizeCause:
            self._resizes.labels(cause)
        self.registry.register(self)

    def count_request(self, method: str, status: int) -> None:
        """Count one request."""
        self._requests.labels(method).inc()
        if status == 0 or status >= 400:
            self._errors.labels(str(status)).inc()

    def count_resizes(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Count the resizes that the new status adds."""
        old, new = (map(ResizeRecord.of, status.get("resizes") or ()) for status in (before, after))
        counted = [(resize.at, resize.cause) for resize in old]
        for resize in new:
            if (resize.at, resize.cause) not in counted:
                self._resizes.labels(resize.cause or ResizeCause.PLAN).inc()

    def set_plan(
        self, key: tuple[str, str], state: State, gauges: PlanGauges, info: Mapping[str, str] | None = None
    ) -> None:
        """Set a plan's state, gauges and info labels."""
        self._plans[key] = (state, gauges, info or {})

    def forget(self, key: tuple[str, str]) -> None:
        """Remove a deleted plan."""
        self._plans.pop(key, None)

    def collect(self) -> Iterable[Metric]:
        """The plans' gauges."""
        states = GaugeMetricFamily("rightsizer_plans", "Plans by state", labels=["state"])
        counts = dict.fromkeys(State, 0)
        for state, *_ in self._plans.values():
            counts[state] += 1
        for state, count in counts.items():
            states.add_metric([state], count)
        yield states
        for name, help_text in _PLAN_GAUGES.items():
            family = GaugeMetricFamily(f"rightsizer_plan_{name}", help_text, labels=["namespace", "plan"])
            for (namespace, plan), (_, gauges, _) in self._plans.items():
                if name in gauges:
                    family.add_metric([namespace, plan], gauges[name])
            yield family
        info_family = GaugeMetricFamily(
            "rightsizer_plan_info",
            "1; the layout and GPU type of the plan",
            labels=["namespace", "plan", *_INFO],
        )
        for key, (*_, info) in self._plans.items():
            if info:
                info_family.add_metric([*key, *(info[name] for name in _INFO)], 1)
        yield info_family

    def describe(self) -> Iterable[Metric]:
        """The families of `collect` without samples: a scrape by name[] then does not render all plans."""
        yield GaugeMetricFamily("rightsizer_plans", "")
        for name in (*_PLAN_GAUGES, "info"):
            yield GaugeMetricFamily(f"rightsizer_plan_{name}", "")

    def render(self, names: Collection[str] = ()) -> bytes:
        """The Prometheus text format; all metrics, or those of these names."""
        return generate_latest(self.registry.restricted_registry(names) if names else self.registry)
