"""Reads Prometheus into Readings: a few queries for all jobs at once; an unusable answer becomes None.

Executors call `read_shown`: each job's Reading if it allows a decision, else what is Missing.
Queries use the recorded families only, which are the same for every exporter and both executors. Each query
covers all jobs of one executor and window and returns one row per job. A field is None if its answer is
missing, not finite, out of range, duplicated, or about another job.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from rightsizer_engine.domain.reading import Missing, Phase, Reading, cleaned
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.preconditions import missing_data
from rightsizer_engine.values import immutable
from rightsizer_telemetry.client import FailedQuery, Prometheus, Row
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import duration, matchers
from rightsizer_telemetry.rules import INTERVAL_S

_MOST_SKEW_S = 300.0
"""The largest accepted clock skew between the server and this machine."""
_FAILURES = 2
"""Failed queries after which the server counts as unavailable and the rest are skipped."""
_CHUNK = 200
"""Jobs per query: a longer query costs the server more than another round trip."""
_BY = f"by ({', '.join(HOLDER)})"


@immutable
class MonitoredJob:
    """One job to read: `key` is the caller's name for it.

    `workload` is the name of the Kubernetes Job (or what owns the pods), or Slurm's job id. `gpus` are those
    it should hold; None: the number seen. `cluster` None: any cluster, if only one has such a job.
    """

    key: Hashable
    executor: str
    workload: str
    namespace: str = ""
    cluster: str | None = None
    window_s: float = 1800.0
    gpus: int | None = None


@immutable
class _Query:
    """A query for one figure; `%s` is the selector, `[%r]` the window."""

    name: str
    query: str

    def text(self, selector: str, window_s: float) -> str:
        return self.query.replace("%r", duration(window_s)).replace("%s", selector)


def _over(name: str, outer: str, inner: str, family: str) -> _Query:
    return _Query(name=name, query=f"{outer} {_BY} ({inner}(rightsizer:{family}%s[%r]))")


def _now(name: str, family: str) -> _Query:
    return _Query(name=name, query=f"max {_BY} (rightsizer:{family}%s)")


def _age(name: str, family: str) -> _Query:
    newest = f"max_over_time(timestamp(rightsizer:{family}%s)[%r:{INTERVAL_S}s])"
    return _Query(name=name, query=f"time() - max {_BY} ({newest})")


_QUERIES = (
    _over("samples", "sum", "count_over_time", "gpu_busy:ratio"),
    _over("busy_sum", "sum", "sum_over_time", "gpu_busy:ratio"),
    _over("busy_max", "max", "max_over_time", "gpu_busy:ratio"),
    _over("tensor", "avg", "avg_over_time", "gpu_tensor_active:ratio"),
    _over("dram", "avg", "avg_over_time", "gpu_dram_active:ratio"),
    _over("power", "max", "avg_over_time", "gpu_power:ratio"),
    _over("memory", "max", "max_over_time", "gpu_memory_used:ratio"),
    _over("gpus_min", "min", "min_over_time", "workload_gpus:count"),
    _over("gpus_max", "max", "max_over_time", "workload_gpus:count"),
    _age("gpu_age", "workload_gpus:count"),
    _over("train_samples", "max", "count_over_time", "train_step:max"),
    _over("tokens_sum", "sum", "sum_over_time", "train_tokens:rate2m"),
    _over("step_seconds_sum", "sum", "sum_over_time", "train_step_seconds:rate2m"),
    _over("steps_sum", "sum", "sum_over_time", "train_steps:rate2m"),
    _over("data_wait", "max", "avg_over_time", "train_data_wait:ratio"),
    _over("checkpoint", "max", "avg_over_time", "train_checkpoint:ratio"),
    _over("workers_min", "min", "min_over_time", "train_workers:max"),
    _over("workers_max", "max", "max_over_time", "train_workers:max"),
    _now("tokens_done", "train_position_tokens:max"),
    _now("step", "train_step:max"),
    _now("saved_at", "train_checkpoint_timestamp_seconds:max"),
    _age("train_age", "train_step:max"),
)
_PHASE = f"max by ({', '.join((*HOLDER, 'phase'))}) (rightsizer:train_phase:info%s)"

_SHOWN = (
    ("gpu_busy_mean", "avg_over_time(rightsizer:gpu_busy:ratio%s[%r])"),
    ("gpu_busy_max", "max_over_time(rightsizer:gpu_busy:ratio%s[%r])"),
    ("tensor_active", "avg_over_time(rightsizer:gpu_tensor_active:ratio%s[%r])"),
    ("power_fraction", "avg_over_time(rightsizer:gpu_power:ratio%s[%r])"),
    ("tokens_per_s", "avg_over_time(rightsizer:train_tokens:rate2m%s[%r])"),
    ("data_wait_fraction", "avg_over_time(rightsizer:train_data_wait:ratio%s[%r])"),
)
"""Evidence: a field, and the query that shows it for each GPU or training."""

_Figures = Mapping[str, float]


def read_shown(
    client: Prometheus, jobs: Iterable[MonitoredJob], *, clock: Callable[[], float] = time.time
) -> Mapping[Hashable, Reading | Missing] | Missing:
    """The readings of every job in Prometheus; `Missing` as a whole if the server is unusable."""
    now_s = _server_time(client, clock)
    if isinstance(now_s, FailedQuery):
        return Missing(reason=f"Prometheus does not answer: {now_s.reason}")
    return {key: shown(reading) for key, reading in _read(client, jobs, INTERVAL_S, now_s).items()}


def shown(reading: Reading) -> Reading | Missing:
    """The reading if it allows a decision, else the missing part."""
    missing = missing_data(reading, load_resize())
    return Missing(reason=f"Prometheus does not show it: {missing.reason}") if missing else reading


def read(
    client: Prometheus,
    jobs: Iterable[MonitoredJob],
    *,
    interval_s: float = INTERVAL_S,
    clock: Callable[[], float] = time.time,
) -> dict[Hashable, Reading]:
    """A Reading of every job, over its window (rounded up to whole minutes), as of the server's now.

    `interval_s` is how often the recording rules are evaluated: coverage is counted against it.
    An unavailable, slow or clock-skewed server yields empty Readings, which never trigger a resize.
    """
    requested = list(jobs)
    now_s = _server_time(client, clock)
    if isinstance(now_s, FailedQuery):
        return {job.key: Reading(window_s=_rounded(job.window_s)) for job in requested}
    return _read(client, requested, interval_s, now_s)


def _read(
    client: Prometheus, jobs: Iterable[MonitoredJob], interval_s: float, now_s: float
) -> dict[Hashable, Reading]:
    requested, readings = list(jobs), dict[Hashable, Reading]()
    for executor, window_s in sorted({(job.executor, _rounded(job.window_s)) for job in requested}):
        group = [job for job in requested if (job.executor, _rounded(job.window_s)) == (executor, window_s)]
        for first in range(0, len(group), _CHUNK):
            part = group[first : first + _CHUNK]
            figures_by_key, phases = _figures(client, part, window_s, now_s)
            for job in part:
                figures = figures_by_key.get(job.key, {})
                reading = replace(
                    _reading(job, figures, interval_s, now_s), phase=phases.get(job.key, Phase.UNKNOWN)
                )
                readings[job.key] = replace(reading, queries=_evidence(job, reading, window_s))
    return readings


def _rounded(window_s: float) -> float:
    return max(60.0, 60.0 * math.ceil(window_s / 60.0))


def _server_time(client: Prometheus, clock: Callable[[], float]) -> float | FailedQuery:
    """The server's time, if its clock agrees with ours."""
    response = client.instant("vector(time())")
    if isinstance(response, FailedQuery):
        return response
    if len(response) != 1 or not math.isfinite(response[0].value):
        return FailedQuery(reason="it returned no time")
    off_s = response[0].value - clock()
    if abs(off_s) > _MOST_SKEW_S:
        return FailedQuery(reason=f"its clock is {off_s:+.0f} s off")
    return response[0].value


def _figures(
    client: Prometheus, jobs: Sequence[MonitoredJob], window_s: float, now_s: float
) -> tuple[Mapping[Hashable, _Figures], Mapping[Hashable, Phase]]:
    """Every figure of every job, by key and name; unanswered ones are absent."""
    selector = _selector(jobs)
    figures: dict[Hashable, dict[str, float]] = {job.key: {} for job in jobs}
    failed = 0
    for query in _QUERIES:
        response = client.instant(query.text(selector, window_s), at_s=now_s)
        if isinstance(response, FailedQuery):
            failed += 1
            if failed >= _FAILURES:
                return {}, {}
            continue
        for key, rows in _by_key(jobs, response).items():
            if len(rows) == 1 and math.isfinite(rows[0].value) and rows[0].value >= 0:
                figures[key][query.name] = rows[0].value
    response = client.instant(_PHASE.replace("%s", selector), at_s=now_s)
    phases = {} if isinstance(response, FailedQuery) else _by_key(jobs, response)
    return figures, {key: _phase(rows) for key, rows in phases.items()}


def _selector(jobs: Sequence[MonitoredJob]) -> str:
    return matchers(
        executor=jobs[0].executor,
        namespace=sorted({job.namespace for job in jobs}),
        workload=sorted({job.workload for job in jobs}),
    )


def _by_key(jobs: Sequence[MonitoredJob], rows: Iterable[Row]) -> dict[Hashable, list[Row]]:
    """The rows of each job; the selector's product of names also matches other jobs."""
    wanted: dict[tuple[str, str], list[MonitoredJob]] = {}
    for job in jobs:
        wanted.setdefault((job.namespace, job.workload), []).append(job)
    grouped: dict[Hashable, list[Row]] = {}
    for row in rows:
        labels = row.labels
        for job in wanted.get((labels.get("namespace", ""), labels.get("workload", "")), ()):
            if labels.get("executor") == job.executor and job.cluster in {None, labels.get("cluster", "")}:
                grouped.setdefault(job.key, []).append(row)
    return grouped


def _phase(rows: Sequence[Row]) -> Phase:
    """The phase; UNKNOWN if several are reported."""
    reported = {row.labels.get("phase", "") for row in rows if row.value == 1}
    known = {phase.value: phase for phase in Phase}
    return known.get(reported.pop(), Phase.UNKNOWN) if len(reported) == 1 else Phase.UNKNOWN


def _coverage(job: MonitoredJob, figures: _Figures, interval_s: float) -> float | None:
    """The share of expected samples that exist: of GPUs or of the training, whichever is lower."""
    each = _rounded(job.window_s) / interval_s
    gpus = job.gpus or figures.get("gpus_max", 0.0)
    expected = {"samples": each * gpus, "train_samples": each}
    seen = [figures[name] / count for name, count in expected.items() if name in figures and count]
    return min(1.0, *seen) if seen else None


def _reading(job: MonitoredJob, figures: _Figures, interval_s: float, now_s: float) -> Reading:
    """The figures as a Reading."""
    window_s = _rounded(job.window_s)
    ages = [figures[name] for name in ("gpu_age", "train_age") if name in figures]
    samples = figures.get("samples", figures.get("train_samples"))
    saved_at = figures.get("saved_at")
    return cleaned(
        Reading(
            window_s=window_s,
            age_s=max(ages, default=None),
            coverage=_coverage(job, figures, interval_s),
            samples=None if samples is None else int(samples),
            gpus=_steady(figures, "workers") or _steady(figures, "gpus"),
            tokens_per_s=_ratio(figures, "tokens_sum", "step_seconds_sum"),
            tokens_done=figures.get("tokens_done"),
            steps=_whole(figures.get("step")),
            window_steps=_whole(_times(figures.get("steps_sum"), interval_s)),
            gpu_busy_mean=_ratio(figures, "busy_sum", "samples"),
            gpu_busy_max=figures.get("busy_max"),
            tensor_active=figures.get("tensor"),
            memory_active=figures.get("dram"),
            power_fraction=figures.get("power"),
            data_wait_fraction=figures.get("data_wait"),
            checkpoint_fraction=figures.get("checkpoint"),
            memory_used_fraction=figures.get("memory"),
            checkpoint_age_s=now_s - saved_at if saved_at else None,
        )
    )


def _steady(figures: _Figures, name: str) -> int | None:
    """A count, if it did not change over the window."""
    low, high = figures.get(f"{name}_min"), figures.get(f"{name}_max")
    return int(low) if low is not None and low == high and low >= 1 else None


def _ratio(figures: _Figures, top: str, bottom: str) -> float | None:
    return figures[top] / figures[bottom] if top in figures and figures.get(bottom, 0.0) > 0 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _evidence(job: MonitoredJob, reading: Reading, window_s: float) -> tuple[str, ...]:
    """Queries that reproduce the reading, each with its result."""
    cluster = {} if job.cluster is None else {"cluster": job.cluster}
    selector = matchers(executor=job.executor, namespace=job.namespace, workload=job.workload, **cluster)
    shown = []
    for field, query in _SHOWN:
        value = getattr(reading, field)
        if value is not None:
            text = query.replace("%r", duration(window_s)).replace("%s", selector)
            shown.append(f"{text} = {value:.4g}")
    return tuple(shown)
