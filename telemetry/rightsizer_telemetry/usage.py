"""GPU usage over a window by workload and owner: allocated, busy and idle GPU-hours, and their cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.values import immutable
from rightsizer_telemetry.client import FailedQuery, Prometheus, Row, Series
from rightsizer_telemetry.coverage import Coverage, NoData, look
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import duration
from rightsizer_telemetry.raw import families as raw_families
from rightsizer_telemetry.raw import inline
from rightsizer_telemetry.rules import INTERVAL_S

TARGET_BUSY = 0.8
"""GPUs as busy as this are well used: NVIDIA calls 0.8 necessary for effective use (DCGM, SM_ACTIVE)."""
_POINTS = 240
"""Points of a curve, and of the sums over the window."""
_BY = ", ".join(HOLDER)


@immutable
class Usage:
    """One workload over the window. None means not measured, which is not 0.

    GPU-hours: `held`, `used` (integral of the share in which kernels ran), `idle` (of idle GPUs).
    `gpus` are held now, `peak_gpus` at most. `needs_gpus`: GPUs that would do the same work at TARGET_BUSY,
    0 for an idle workload. It is a hint: fewer GPUs may train slower.
    """

    executor: str
    cluster: str = ""
    namespace: str = ""
    workload: str
    plan: str = ""
    user: str = ""
    account: str = ""
    models: tuple[str, ...] = ()
    gpus: int = 0
    peak_gpus: int = 0
    held_gpu_h: float = 0.0
    used_gpu_h: float | None = None
    idle_gpu_h: float | None = None
    busy_max: float | None = None
    tensor_active: float | None = None
    memory_used_max: float | None = None
    price_usd_per_gpu_h: float | None = None

    @property
    def busy_mean(self) -> float | None:
        """Share of the held time in which kernels ran."""
        return None if self.used_gpu_h is None or not self.held_gpu_h else self.used_gpu_h / self.held_gpu_h

    @property
    def idle_usd(self) -> float | None:
        """The cost of the idle GPU-hours."""
        if self.idle_gpu_h is None or self.price_usd_per_gpu_h is None:
            return None
        return self.idle_gpu_h * self.price_usd_per_gpu_h

    @property
    def needs_gpus(self) -> int | None:
        """GPUs that would do the same work at TARGET_BUSY."""
        if self.busy_mean is None or self.busy_max is None:
            return None
        if self.busy_max < load_resize().idle_busy:
            return 0
        return min(self.peak_gpus, max(1, math.ceil(self.peak_gpus * self.busy_mean / TARGET_BUSY - 1e-9)))

    @property
    def owner(self) -> str:
        """The namespace, or account and user if known."""
        if self.executor == "kubernetes":
            return self.namespace
        return "/".join(part for part in (self.account, self.user) if part) or "unknown"


@immutable
class Owner:
    """Sums over the workloads of one namespace or account, without unmeasured values; None: none is known."""

    executor: str
    name: str
    workloads: int
    held_gpu_h: float
    used_gpu_h: float | None
    idle_gpu_h: float | None
    unmetered_gpu_h: float
    idle_usd: float | None


@immutable
class UsageReport:
    """A window that ends at `at_s`; `curves` are GPUs held, busy and free over it.

    `late`: executor, cluster, namespace and name of each plan that will miss its deadline.
    """

    at_s: float
    window_s: float
    step_s: float
    coverage: Coverage
    workloads: tuple[Usage, ...]
    free_gpu_h: float | None = None
    curves: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    late: frozenset[tuple[str, str, str, str]] = frozenset()


def collect(
    client: Prometheus, *, window_s: float, price_usd_per_gpu_h: float | None = None
) -> UsageReport | NoData:
    """The usage as our recording rules have it, else as exporters report it. InputError without an answer."""
    if not (math.isfinite(window_s) and window_s >= 60):
        raise InputError("window", value=window_s, remedy="at least a minute")
    clock = _require(client.instant("vector(time())"))
    if len(clock) != 1 or not math.isfinite(clock[0].value):
        raise InputError("prometheus", value="vector(time())", remedy="the server returned no time")
    now_s = clock[0].value
    step_s = float(max(INTERVAL_S, math.ceil(window_s / _POINTS)))
    coverage = look(client, start_s=now_s - window_s, end_s=now_s, step_s=step_s)
    if isinstance(coverage, NoData):
        return coverage
    raw = {} if coverage.recorded else raw_families(coverage.sources)
    queries = _Queries(client=client, now_s=now_s, window_s=window_s, step_s=step_s, raw=raw)
    figures = queries.figures()
    labels = {label: queries.label_values(label, family) for label, family in _LABEL_FAMILIES.items()}
    workloads = [
        _usage(holder, row, step_s)
        for holder, row in sorted(figures.items())
        if row.get("held", 0.0) > 0 or row.get("requested", 0.0) > 0
    ]
    named = [_named(use, labels, price_usd_per_gpu_h) for use in workloads]
    named.sort(key=lambda use: (-(use.idle_gpu_h or 0.0), -use.held_gpu_h, use.workload))
    return UsageReport(
        at_s=now_s,
        window_s=window_s,
        step_s=step_s,
        coverage=coverage,
        workloads=tuple(named),
        free_gpu_h=queries.total('count(rightsizer:gpu_busy:ratio{executor=""})'),
        curves=queries.curves(),
        late=queries.late(),
    )


def owners(report: UsageReport) -> tuple[Owner, ...]:
    """Sums by namespace or account, the most idle first."""
    groups: dict[tuple[str, str], list[Usage]] = {}
    for use in report.workloads:
        groups.setdefault((use.executor, use.owner), []).append(use)
    sums = [_owner(executor, name, uses) for (executor, name), uses in groups.items()]
    return tuple(sorted(sums, key=lambda owner: (-(owner.idle_gpu_h or 0.0), -owner.held_gpu_h, owner.name)))


def total(report: UsageReport) -> Owner:
    """The sum over all workloads."""
    return _owner("", "", report.workloads)


def _owner(executor: str, name: str, uses: Sequence[Usage]) -> Owner:
    return Owner(
        executor=executor,
        name=name,
        workloads=len(uses),
        held_gpu_h=math.fsum(use.held_gpu_h for use in uses),
        used_gpu_h=_sum(use.used_gpu_h for use in uses),
        idle_gpu_h=_sum(use.idle_gpu_h for use in uses),
        unmetered_gpu_h=math.fsum(use.held_gpu_h for use in uses if use.used_gpu_h is None),
        idle_usd=_sum(use.idle_usd for use in uses),
    )


_Holder = tuple[str, str, str, str]
_HELD = "rightsizer:workload_gpus:count"
_SUMS = {
    "held": _HELD,
    "used": f"rightsizer:workload_busy:ratio * {_HELD}",
    "idle": "rightsizer:workload_idle_gpus:count",
    "requested": f"rightsizer:workload_requested_gpus:count unless on ({_BY}) {_HELD}",
}
"""GPU counts to integrate over the window."""
_LEVELS = {
    "peak": f"max by ({_BY}) (max_over_time({_HELD}[%r]))",
    "peak_requested": f"max by ({_BY}) (max_over_time(rightsizer:workload_requested_gpus:count[%r]))",
    "now": f"max by ({_BY}) ({_HELD})",
    "now_requested": f"max by ({_BY}) (rightsizer:workload_requested_gpus:count)",
    "busy_max": f"max by ({_BY}) (max_over_time(rightsizer:workload_busy:max[%r]))",
    "tensor": f"max by ({_BY}) (avg_over_time(rightsizer:workload_tensor:ratio[%r]))",
    "memory": f'max by ({_BY}) (max_over_time(rightsizer:gpu_memory_used:ratio{{executor!=""}}[%r]))',
}
_CURVES = {
    "held": f"sum({_HELD})",
    "busy": f"sum(rightsizer:workload_busy:ratio * {_HELD})",
    "free": 'count(rightsizer:gpu_busy:ratio{executor=""})',
}


@immutable
class _Queries:
    """The queries of one report; `raw`: recorded family -> PromQL over raw series, empty with our rules."""

    client: Prometheus
    now_s: float
    window_s: float
    step_s: float
    raw: Mapping[str, str]

    def instant(self, query: str) -> Sequence[Row]:
        """The rows at the end of the window."""
        return _require(self.client.instant(self._spelt(query), at_s=self.now_s))

    def _spelt(self, query: str) -> str:
        return inline(query, self.raw, step=duration(self.step_s)) if self.raw else query

    def figures(self) -> dict[_Holder, dict[str, float]]:
        """Every figure of every workload, by name; unmeasured ones are absent."""
        figures: dict[_Holder, dict[str, float]] = {}
        spans = f"[{duration(self.window_s)}:{duration(self.step_s)}]"
        queries = {
            **{name: f"max by ({_BY}) (sum_over_time(({query}){spans}))" for name, query in _SUMS.items()},
            **{name: query.replace("%r", duration(self.window_s)) for name, query in _LEVELS.items()},
        }
        for name, query in queries.items():
            for row in self.instant(query):
                if math.isfinite(row.value) and row.value >= 0:
                    figures.setdefault(_holder(row), {})[name] = row.value
        return figures

    def label_values(self, label: str, family: str) -> dict[_Holder, tuple[str, ...]]:
        """The values of one label for each workload."""
        query = f"group by ({_BY}, {label}) (last_over_time({family}[{duration(self.window_s)}]))"
        values: dict[_Holder, set[str]] = {}
        for row in self.instant(query):
            if row.labels.get(label):
                values.setdefault(_holder(row), set()).add(row.labels[label])
        return {holder: tuple(sorted(names)) for holder, names in values.items()}

    def total(self, query: str) -> float | None:
        """GPU-hours of a count over the window."""
        spans = f"[{duration(self.window_s)}:{duration(self.step_s)}]"
        rows = self.instant(f"sum_over_time(({query}){spans})")
        return rows[0].value * self.step_s / 3600 if len(rows) == 1 and math.isfinite(rows[0].value) else None

    def late(self) -> frozenset[tuple[str, str, str, str]]:
        """The plans that will miss their deadline, as far as our rules say it."""
        names = ("executor", "cluster", "namespace", "plan")
        rows = () if self.raw else self.instant("rightsizer:plan_margin:seconds < 0")
        return frozenset(
            (label[0], label[1], label[2], label[3])
            for label in (tuple(row.labels.get(name, "") for name in names) for row in rows)
        )

    def curves(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """GPUs held, busy and free over the window; empty where nothing was measured."""
        start_s = self.now_s - self.window_s
        curves = {}
        for name, query in _CURVES.items():
            spelt = self._spelt(query)
            response = self.client.range(spelt, start_s=start_s, end_s=self.now_s, step_s=self.step_s)
            series: Sequence[Series] = () if isinstance(response, FailedQuery) else response
            curves[name] = tuple(
                (at_s, value) for one in series for at_s, value in one.points if math.isfinite(value)
            )
        return curves


def _price(models: Iterable[str], given: float | None) -> float | None:
    """USD per GPU-hour: the given price, else the list price of the cheapest model."""
    if given is not None:
        return given
    return min((price for model in models if (price := _list_price(model)) is not None), default=None)


def _list_price(model: str) -> float | None:
    try:
        return lookup.gpu(model).price_usd_per_gpu_h
    except RightsizerError:
        return None


def _usage(holder: _Holder, row: Mapping[str, float], step_s: float) -> Usage:
    hours = step_s / 3600
    executor, cluster, namespace, workload = holder
    metered = "held" in row
    return Usage(
        executor=executor,
        cluster=cluster,
        namespace=namespace,
        workload=workload,
        gpus=round(row.get("now" if metered else "now_requested", 0.0)),
        peak_gpus=round(row.get("peak" if metered else "peak_requested", 0.0)),
        held_gpu_h=row.get("held", row.get("requested", 0.0)) * hours,
        used_gpu_h=row["used"] * hours if "used" in row else None,
        idle_gpu_h=row["idle"] * hours if "idle" in row else None,
        busy_max=row.get("busy_max"),
        tensor_active=row.get("tensor"),
        memory_used_max=row.get("memory"),
    )


_LABEL_FAMILIES = {
    "model": "rightsizer:gpu_busy:ratio",
    "user": "rightsizer:workload_owner:info",
    "account": "rightsizer:workload_owner:info",
    "plan": "rightsizer:train_step:max",
}
"""The recorded family of each label."""


def _named(use: Usage, labels: Mapping[str, Mapping[_Holder, tuple[str, ...]]], price: float | None) -> Usage:
    holder = (use.executor, use.cluster, use.namespace, use.workload)
    values = {label: by_holder.get(holder, ()) for label, by_holder in labels.items()}
    return replace(
        use,
        models=values["model"],
        user=", ".join([user for user in values["user"] if not user.startswith("uid ")] or values["user"]),
        account=", ".join(values["account"]),
        plan=", ".join(values["plan"]),
        price_usd_per_gpu_h=_price(values["model"], price),
    )


def _holder(row: Row) -> _Holder:
    executor, cluster, namespace, workload = (row.labels.get(name, "") for name in HOLDER)
    return (executor, cluster, namespace, workload)


def _require(response: Sequence[Row] | FailedQuery) -> Sequence[Row]:
    if isinstance(response, FailedQuery):
        raise InputError(
            "prometheus", value=response.reason, remedy="no usable answer: is the address right?"
        )
    return response


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) if known else None
