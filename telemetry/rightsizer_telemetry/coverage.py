"""The GPU metrics of a Prometheus in a window: the series, their share of it, and missing ones."""

from collections.abc import Mapping, Sequence

from rightsizer_engine.errors import InputError
from rightsizer_engine.units import format_duration
from rightsizer_engine.values import immutable
from rightsizer_telemetry.client import FailedQuery, Prometheus
from rightsizer_telemetry.promql import constants, relabel, string
from rightsizer_telemetry.rules import GPU_REQUESTS, SHARES
from rightsizer_telemetry.sources import SOURCES, Source

_BUSY, _REQUESTED = "rightsizer:gpu_busy:ratio", "rightsizer:workload_requested_gpus:count"
_ENOUGH = 0.95
"""Recorded series that cover this share of what the raw ones cover are preferred to them."""
_WHOLE = 0.98
"""A window covered by less than this is called partial: a restart of the server is shorter."""
_RULES = (
    "load helm/rightsizer/monitoring/recording-rules.yaml (chart: monitoring.rules=true) for plans, "
    "short jobs and quicker reports"
)


@immutable
class NoData:
    """A server without any series of GPUs, and what to do."""

    reason: str
    remedy: str


@immutable
class Coverage:
    """The data for a report over this window.

    `recorded`: from our rules, else from the raw signals of `sources`. `gpu_s`: seconds of the window with
    GPU measurements. `notes`: what is missing and how to get it.
    """

    recorded: bool
    sources: Mapping[Source, frozenset[str]]
    gpu_s: float
    notes: tuple[str, ...] = ()


def look(client: Prometheus, *, start_s: float, end_s: float, step_s: float) -> Coverage | NoData:
    """The GPU metric families that the server has in the window. InputError if it gives no usable answer."""
    response = client.range(_QUERY, start_s=start_s, end_s=end_s, step_s=step_s)
    if isinstance(response, FailedQuery):
        raise InputError(
            "prometheus", value=response.reason, remedy="no usable answer: is the address right?"
        )
    seen = {one.labels.get("family", ""): frozenset(at_s for at_s, _ in one.points) for one in response}
    if not seen:
        return _no_data(end_s - start_s)
    sources = {
        source: frozenset(signal for signal in source.signals if source.metric(signal) in seen)
        for source in SOURCES
    }
    busy_raw = _times(seen, [source.metric(signal) for source in SOURCES for signal in _SIGNALS])
    busy_recorded = _times(seen, [_BUSY])
    if busy_raw or busy_recorded:
        recorded = len(busy_recorded) >= _ENOUGH * len(busy_raw)
    else:
        recorded = _REQUESTED in seen
    times = busy_recorded if recorded else busy_raw
    gpu_s = min(end_s - start_s, max(1, len(times) - 1) * step_s) if times else 0.0
    notes = _notes(seen, sources, recorded=recorded, gpu_s=gpu_s, window_s=end_s - start_s)
    return Coverage(recorded=recorded, sources=sources, gpu_s=gpu_s, notes=notes)


_SIGNALS = frozenset(signal for reading in SHARES["gpu_busy:ratio"] for signal in reading.signals)
_RAW_REQUESTS = "requested"


def _query() -> str:
    """The families that the server has, as label `family`."""
    names = [_BUSY, _REQUESTED, *(source.names() for source in SOURCES)]
    every = relabel(f"{{__name__=~{string('|'.join(names))}}}", [("family", "$1", "__name__", "(.+)")])
    requests = relabel(f"({' or '.join(GPU_REQUESTS)})", constants({"family": _RAW_REQUESTS}))
    return f"group by (family) ({every}) or group by (family) ({requests})"


_QUERY = _query()


def _times(seen: Mapping[str, frozenset[float]], names: Sequence[str]) -> frozenset[float]:
    return frozenset[float]().union(*(seen.get(name, frozenset()) for name in names))


def _no_data(window_s: float) -> NoData:
    return NoData(
        reason=f"the server has no GPU metrics of the last {format_duration(window_s)}: neither rightsizer's "
        f"recorded series, nor {', '.join(f'{source.prefix}*' for source in SOURCES)}, nor GPU requests of "
        "kube-state-metrics",
        remedy="let it scrape dcgm-exporter, jobstats' exporter or slurm-job-exporter (docs/telemetry.md)",
    )


def _notes(
    seen: Mapping[str, frozenset[float]],
    sources: Mapping[Source, frozenset[str]],
    *,
    recorded: bool,
    gpu_s: float,
    window_s: float,
) -> tuple[str, ...]:
    notes = []
    if gpu_s == 0:
        notes.append("no exporter reports how busy the GPUs are: let the server scrape dcgm-exporter")
    elif gpu_s < _WHOLE * window_s:
        notes.append(f"GPU metrics cover {format_duration(gpu_s)} of the {format_duration(window_s)} asked")
    if not recorded:
        names = ", ".join(source.name for source, signals in sources.items() if signals) or "requests"
        notes.append(f"rightsizer's rules do not cover it: read from raw series ({names}); {_RULES}")
    signals = frozenset[str]().union(*sources.values())
    if gpu_s and signals & _SIGNALS == {"DEV_GPU_UTIL"}:
        notes.append("only DCGM_FI_DEV_GPU_UTIL: MIG instances need DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    if not {_REQUESTED, _RAW_REQUESTS} & set(seen):
        notes.append("no kube-state-metrics or Slurm monitor: GPUs without an exporter are not counted")
    return tuple(notes)
