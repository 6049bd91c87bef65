"""GPU metrics of Slurm jobs from Prometheus, as Readings by job. Without an answer they are unknown."""

from collections.abc import Callable, Sequence

from rightsizer_engine.domain.reading import Reading
from rightsizer_engine.estimate.parameters import load_resize
from rightsizer_engine.resize.preconditions import missing_data
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_telemetry import readings
from rightsizer_telemetry.client import Prometheus, PrometheusSettings

Metrics = Callable[[Sequence[SlurmJob]], dict[int, Reading]]


def gpu_metrics(access: PrometheusSettings | None, *, window_s: float) -> Metrics:
    """The reader of GPU metrics; without Prometheus it returns nothing."""
    return (lambda _jobs: {}) if access is None else reader(access, window_s=window_s)


def reader(access: PrometheusSettings, *, window_s: float) -> Metrics:
    """The reader for a sweep's jobs: a few queries for all of them."""
    client = Prometheus(access)

    def read(jobs: Sequence[SlurmJob]) -> dict[int, Reading]:
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
        failure = readings.server_problem(client) if queried else ""
        if failure:
            why = (f"Prometheus does not answer: {failure}",)
            return {int(str(job.key)): Reading(queries=why) for job in queried}
        measured = readings.read(client, queried) if queried else {}
        return {job.job_id: measured[job.job_id] for job in jobs if job.job_id in measured}

    return read


def lack(gpu: Reading | None) -> str:
    """Why no decision is allowed on a job; empty if Prometheus shows the job or was not queried."""
    unseen = "" if gpu is None else missing_data(gpu, load_resize())
    if gpu is None or not unseen:
        return ""
    if gpu.window_s is None and gpu.queries:
        return gpu.queries[0]
    return f"Prometheus does not show it: {unseen.removeprefix('unknown: ')}"
