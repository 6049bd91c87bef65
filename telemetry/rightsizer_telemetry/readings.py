"""From Prometheus to Readings: a few questions for all jobs at once; what is not sound is None.

Questions go to the recorded families only, so that every exporter and both executors read alike. Each is
asked for all jobs of one executor and window, and answered with one row for each job. An answer that is
missing, not finite, out of range, twice there, or about something else, leaves its field None.
"""

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from rightsizer.domain.reading import Phase, Reading, cleaned
from rightsizer.values import immutable
from rightsizer_telemetry.client import Prometheus, Row, Unknown
from rightsizer_telemetry.names import HOLDER
from rightsizer_telemetry.promql import duration, matchers
from rightsizer_telemetry.rules import INTERVAL_S

__all__ = ["Job", "read", "trouble"]

_MOST_SKEW_S = 300.0
"""A server whose clock differs from ours by more answers about another time, as a cache may."""
_FAILURES = 2
"""Questions that may fail; then the server is taken to be down, and no time is spent on the rest."""
_CHUNK = 200
"""Jobs in a question: longer ones cost the server more than another round trip."""
_BY = f"by ({', '.join(HOLDER)})"


@immutable
class Job:
    """One job to read: `key` is the caller's name for it.

    `workload` is the name of the Kubernetes Job (or what owns the pods), or Slurm's job id. `gpus` are those
    that it should hold; None: as many as were seen. `cluster` None: any, if there is only one such job.
    """

    key: Hashable
    executor: str
    workload: str
    namespace: str = ""
    cluster: str | None = None
    window_s: float = 1800.0
    gpus: int | None = None


@immutable
class _Question:
    """What is asked of a family; `%s` is the selector, `[%r]` the window."""

    name: str
    query: str

    def text(self, selector: str, window_s: float) -> str:
        return self.query.replace("%r", duration(window_s)).replace("%s", selector)


def _over(name: str, outer: str, inner: str, family: str) -> _Question:
    return _Question(name=name, query=f"{outer} {_BY} ({inner}(rightsizer:{family}%s[%r]))")


def _now(name: str, family: str) -> _Question:
    return _Question(name=name, query=f"max {_BY} (rightsizer:{family}%s)")


def _age(name: str, family: str) -> _Question:
    newest = f"max_over_time(timestamp(rightsizer:{family}%s)[%r:{INTERVAL_S}s])"
    return _Question(name=name, query=f"time() - max {_BY} ({newest})")


_QUESTIONS = (
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
"""Evidence: a field, and the question that a person pastes to see it for each GPU or training."""

_Figures = Mapping[str, float]


def read(
    client: Prometheus,
    jobs: Iterable[Job],
    *,
    interval_s: float = INTERVAL_S,
    clock: Callable[[], float] = time.time,
) -> dict[Hashable, Reading]:
    """A Reading of every job, over its window (rounded up to whole minutes), as of the server's now.

    `interval_s` is how often the recording rules are evaluated: coverage is counted against it.
    A server that is down, slow or lies yields Readings of None: nothing is known, and nothing may be done.
    """
    asked = list(jobs)
    found: dict[Hashable, Reading] = {job.key: Reading(window_s=_rounded(job.window_s)) for job in asked}
    now_s = _server_time(client, clock)
    if isinstance(now_s, Unknown):
        return found
    for executor, window_s in sorted({(job.executor, _rounded(job.window_s)) for job in asked}):
        group = [job for job in asked if (job.executor, _rounded(job.window_s)) == (executor, window_s)]
        for first in range(0, len(group), _CHUNK):
            part = group[first : first + _CHUNK]
            figures, phases = _figures(client, part, window_s, now_s)
            for job in part:
                some = figures.get(job.key, {})
                reading = replace(
                    _reading(job, some, interval_s, now_s), phase=phases.get(job.key, Phase.UNKNOWN)
                )
                found[job.key] = replace(reading, queries=_evidence(job, reading, window_s))
    return found


def _rounded(window_s: float) -> float:
    return max(60.0, 60.0 * math.ceil(window_s / 60.0))


def trouble(client: Prometheus, *, clock: Callable[[], float] = time.time) -> str:
    """Why this server is not to be relied on at the moment, in words; empty if it is."""
    found = _server_time(client, clock)
    return found.reason if isinstance(found, Unknown) else ""


def _server_time(client: Prometheus, clock: Callable[[], float]) -> float | Unknown:
    """The server's now, if it says it and is in our time."""
    answer = client.instant("vector(time())")
    if isinstance(answer, Unknown):
        return answer
    if len(answer) != 1 or not math.isfinite(answer[0].value):
        return Unknown(reason="it does not say what time it is")
    off_s = answer[0].value - clock()
    if abs(off_s) > _MOST_SKEW_S:
        return Unknown(reason=f"its clock is {off_s:+.0f} s off")
    return answer[0].value


def _figures(
    client: Prometheus, jobs: Sequence[Job], window_s: float, now_s: float
) -> tuple[Mapping[Hashable, _Figures], Mapping[Hashable, Phase]]:
    """Every figure of every job, by key and name; what was not answered is not there."""
    selector = _selector(jobs)
    figures: dict[Hashable, dict[str, float]] = {job.key: {} for job in jobs}
    failed = 0
    for question in _QUESTIONS:
        answer = client.instant(question.text(selector, window_s), at_s=now_s)
        if isinstance(answer, Unknown):
            failed += 1
            if failed >= _FAILURES:
                return {}, {}
            continue
        for key, rows in _by_key(jobs, answer).items():
            if len(rows) == 1 and math.isfinite(rows[0].value) and rows[0].value >= 0:
                figures[key][question.name] = rows[0].value
    answer = client.instant(_PHASE.replace("%s", selector), at_s=now_s)
    phases = {} if isinstance(answer, Unknown) else _by_key(jobs, answer)
    return figures, {key: _phase(rows) for key, rows in phases.items()}


def _selector(jobs: Sequence[Job]) -> str:
    return matchers(
        executor=jobs[0].executor,
        namespace=sorted({job.namespace for job in jobs}),
        workload=sorted({job.workload for job in jobs}),
    )


def _by_key(jobs: Sequence[Job], rows: Iterable[Row]) -> dict[Hashable, list[Row]]:
    """The rows of each job; the selector's product of names also brings rows that nobody asked for."""
    wanted: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        wanted.setdefault((job.namespace, job.workload), []).append(job)
    found: dict[Hashable, list[Row]] = {}
    for row in rows:
        labels = row.labels
        for job in wanted.get((labels.get("namespace", ""), labels.get("workload", "")), ()):
            if labels.get("executor") == job.executor and job.cluster in {None, labels.get("cluster", "")}:
                found.setdefault(job.key, []).append(row)
    return found


def _phase(rows: Sequence[Row]) -> Phase:
    """The one phase that is said; several at a time are none."""
    said = {row.labels.get("phase", "") for row in rows if row.value == 1}
    known = {phase.value: phase for phase in Phase}
    return known.get(said.pop(), Phase.UNKNOWN) if len(said) == 1 else Phase.UNKNOWN


def _coverage(job: Job, some: _Figures, interval_s: float) -> float | None:
    """The share of the expected samples, of GPUs or of the training, whichever was seen less."""
    each = _rounded(job.window_s) / interval_s
    gpus = job.gpus or some.get("gpus_max", 0.0)
    expected = {"samples": each * gpus, "train_samples": each}
    seen = [some[name] / count for name, count in expected.items() if name in some and count]
    return min(1.0, *seen) if seen else None


def _reading(job: Job, some: _Figures, interval_s: float, now_s: float) -> Reading:
    """The figures as a Reading."""
    window_s = _rounded(job.window_s)
    ages = [some[name] for name in ("gpu_age", "train_age") if name in some]
    samples = some.get("samples", some.get("train_samples"))
    saved_at = some.get("saved_at")
    return cleaned(
        Reading(
            window_s=window_s,
            age_s=max(ages, default=None),
            coverage=_coverage(job, some, interval_s),
            samples=None if samples is None else int(samples),
            gpus=_steady(some, "workers") or _steady(some, "gpus"),
            tokens_per_s=_ratio(some, "tokens_sum", "step_seconds_sum"),
            tokens_done=some.get("tokens_done"),
            steps=_whole(some.get("step")),
            window_steps=_whole(_times(some.get("steps_sum"), interval_s)),
            gpu_busy_mean=_ratio(some, "busy_sum", "samples"),
            gpu_busy_max=some.get("busy_max"),
            tensor_active=some.get("tensor"),
            memory_active=some.get("dram"),
            power_fraction=some.get("power"),
            data_wait_fraction=some.get("data_wait"),
            checkpoint_fraction=some.get("checkpoint"),
            memory_used_fraction=some.get("memory"),
            checkpoint_age_s=now_s - saved_at if saved_at else None,
        )
    )


def _steady(some: _Figures, name: str) -> int | None:
    """A count that did not change over the window."""
    low, high = some.get(f"{name}_min"), some.get(f"{name}_max")
    return int(low) if low is not None and low == high and low >= 1 else None


def _ratio(some: _Figures, top: str, bottom: str) -> float | None:
    return some[top] / some[bottom] if top in some and some.get(bottom, 0.0) > 0 else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _evidence(job: Job, reading: Reading, window_s: float) -> tuple[str, ...]:
    """What a person may paste to see the same, each with its answer."""
    cluster = {} if job.cluster is None else {"cluster": job.cluster}
    selector = matchers(executor=job.executor, namespace=job.namespace, workload=job.workload, **cluster)
    shown = []
    for field, query in _SHOWN:
        value = getattr(reading, field)
        if value is not None:
            text = query.replace("%r", duration(window_s)).replace("%s", selector)
            shown.append(f"{text} = {value:.4g}")
    return tuple(shown)
