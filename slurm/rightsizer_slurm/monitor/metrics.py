"""Prometheus metrics of the monitor and of every job; rightsizer_telemetry defines the names."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from prometheus_client import CollectorRegistry, write_to_textfile
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from rightsizer_api.placeholders import layout_of
from rightsizer_engine.resize.types import Action
from rightsizer_engine.search.reasons import layout_text
from rightsizer_slurm.cluster.jobs import decision_of
from rightsizer_slurm.monitor.decide import ReportRow
from rightsizer_telemetry.names import SLURM, SLURM_LABELS

_JOB = ("cluster", "jobid")
_Samples = dict[tuple[str, ...], float]


class SweepMetrics:
    """A collector: counters since the start, and gauges of the newest sweep."""

    def __init__(self, *, cluster: str, verdicts: Mapping[str, int] = MappingProxyType({})) -> None:
        """`verdicts` are the daemon's verdicts so far, counted."""
        self.registry = CollectorRegistry(auto_describe=False)
        self._cluster = cluster
        self._verdicts = verdicts
        self._rows: Sequence[ReportRow] = ()
        self._decisions: Counter[str] = Counter(dict.fromkeys(map(str, Action), 0))
        self._errors: Counter[str] = Counter(dict.fromkeys(_COMMANDS, 0))
        self._at_s = self._took_s = 0.0
        self.registry.register(self)

    def swept(self, rows: Sequence[ReportRow], errors: Sequence[str], *, at_s: float, took_s: float) -> None:
        """Add one sweep."""
        self._rows, self._at_s, self._took_s = rows, at_s, took_s
        self._decisions.update(str(row.decision.action) for row in rows)
        self._errors.update(errors)

    def failed(self, command: str) -> None:
        """Count a sweep that failed at a command of Slurm."""
        self._errors[command] += 1

    def write(self, path: Path) -> None:
        """Write the node exporter's textfile atomically."""
        write_to_textfile(str(path), self.registry)

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield self._gauge("rightsizer_slurm_sweep_timestamp_seconds", {(): self._at_s})
        yield self._gauge("rightsizer_slurm_sweep_seconds", {(): self._took_s})
        yield self._counter("rightsizer_slurm_decisions_total", self._decisions)
        yield self._counter("rightsizer_slurm_requests_total", dict(self._verdicts))
        unsized = sum(not (row.monitored.plan or decision_of(row.job.admin_comment)) for row in self._rows)
        yield self._gauge("rightsizer_slurm_unsized_jobs", {(self._cluster,): float(unsized)})
        yield self._counter("rightsizer_slurm_command_errors_total", self._errors)
        states = Counter(row.job.state for row in self._rows if row.monitored.plan)
        by_state: _Samples = {(self._cluster, state): float(count) for state, count in states.items()}
        yield self._gauge("rightsizer_slurm_jobs", by_state)
        yield from self._jobs()

    def _jobs(self) -> Iterator[Metric]:
        info: _Samples = {}
        layouts: _Samples = {}
        values: dict[str, _Samples] = {name: {} for name in _VALUES}
        for row in self._rows:
            job, name = row.job, row.monitored.plan.metadata.name if row.monitored.plan else ""
            key = (self._cluster, str(job.job_id))
            info[(*key, job.user, job.account, job.partition, name)] = 1.0
            if row.monitored.run and row.monitored.run.layout:
                layouts[(*key, _layout(row), row.monitored.run.gpu)] = 1.0
            for metric, value in _values(row).items():
                if value is not None:
                    values[metric][key] = value
        yield self._gauge("rightsizer_slurm_job_info", info)
        yield self._gauge("rightsizer_slurm_job_layout", layouts)
        for name in _VALUES:
            yield self._gauge(name, values[name])

    def _gauge(self, name: str, samples: _Samples) -> Metric:
        family = GaugeMetricFamily(name, SLURM[name], labels=SLURM_LABELS.get(name, _JOB))
        for labels, value in samples.items():
            family.add_metric(labels, value)
        return family

    def _counter(self, name: str, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(name.removesuffix("_total"), SLURM[name], labels=SLURM_LABELS[name])
        for label, count in counts.items():
            family.add_metric((label,), float(count))
        return family


_COMMANDS = ("squeue", "scontrol", "sinfo")  # present from the start, at zero
_VALUES = (
    "rightsizer_slurm_job_gpus",
    "rightsizer_slurm_job_sized_gpus",
    "rightsizer_slurm_job_predicted_tokens_per_second",
    "rightsizer_slurm_job_measured_tokens_per_second",
    "rightsizer_slurm_job_restarts",
    "rightsizer_slurm_job_margin_seconds",
)


def _layout(row: ReportRow) -> str:
    """The layout at the job's present size, as text."""
    run = row.monitored.run
    assert run is not None  # the caller has checked it
    layout = layout_of(run.layout)
    replica = max(1, layout.gpus // layout.dp)
    ranks = max(1, row.job.nodes * run.node_gpus // replica)
    return layout_text(replace(layout, dp=ranks))


def _values(row: ReportRow) -> dict[str, float | None]:
    run, job = row.monitored.run, row.job
    predicted = run.batch_tokens / run.step_s if run and run.step_s else None
    figures = (
        float(job.gpus) if job.running else 0.0,
        float(run.nodes * run.node_gpus) if run else None,
        predicted,
        row.reading.tokens_per_s,
        float(job.restarts),
        row.margin_s,
    )
    return dict(zip(_VALUES, figures, strict=True))
