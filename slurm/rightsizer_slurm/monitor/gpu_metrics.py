"""GPU metrics of Slurm jobs from Prometheus, by job: a Reading, or what is Missing."""

from collections.abc import Callable, Sequence

from rightsizer_engine.domain.reading import Missing, Reading
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_telemetry import readings
from rightsizer_telemetry.client import Prometheus, PrometheusSettings

Metrics = Callable[[Sequence[SlurmJob]], dict[int, Reading | Missing]]


def gpu_metrics(access: PrometheusSettings | None, *, window_s: float) -> Metrics:
    """The reader of GPU metrics; without Prometheus it returns nothing."""
    return (lambda _jobs: {}) if access is None else reader(access, window_s=window_s)


def reader(access: PrometheusSettings, *, window_s: float) -> Metrics:
    """The reader for a sweep's jobs: a few queries for all of them."""
    client = Prometheus(access)

    def read(jobs: Sequence[SlurmJob]) -> dict[int, Reading | Missing]:
        queried = [
            readings.MonitoredJob(
                key=job.job_id,
                executor="slurm",
                workload=str(job.job_id),
                window_s=window_s,
                gpus=job.gpus,
            )
            for job in jobs
            if job.running
        ]
        measured = readings.read_shown(client, queried) if queried else {}
        if isinstance(measured, Missing):
            return {job.job_id: measured for job in jobs if job.running}
        return {job.job_id: measured[job.job_id] for job in jobs if job.job_id in measured}

    return read
