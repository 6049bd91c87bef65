"""GPU metrics of Slurm's jobs from Prometheus, as Readings by job. Without an answer nothing is known."""

from collections.abc import Callable, Sequence

from rightsizer.domain.reading import Reading
from rightsizer.estimate.parameters import load_resize
from rightsizer.resize.preconditions import missing_data
from rightsizer_slurm.cluster.jobs import Job
from rightsizer_telemetry import readings
from rightsizer_telemetry.client import Access, Prometheus

__all__ = ["Metrics", "gpu_metrics", "lack", "reader"]

Metrics = Callable[[Sequence[Job]], dict[int, Reading]]


def gpu_metrics(access: Access | None, *, window_s: float) -> Metrics:
    """How GPU metrics are read; without a Prometheus nothing is."""
    return (lambda _jobs: {}) if access is None else reader(access, window_s=window_s)


def reader(access: Access, *, window_s: float) -> Metrics:
    """What to ask for a sweep's jobs: a few questions for all of them."""
    client = Prometheus(access)

    def read(jobs: Sequence[Job]) -> dict[int, Reading]:
        asked = [
            readings.Job(
                key=job.job_id,
                executor="slurm",
                workload=str(job.job_id),
                window_s=window_s,
                gpus=job.gpus,
            )
            for job in jobs
            if job.running
        ]
        silence = readings.trouble(client) if asked else ""
        if silence:
            why = (f"Prometheus does not answer: {silence}",)
            return {int(str(job.key)): Reading(queries=why) for job in asked}
        found = readings.read(client, asked) if asked else {}
        return {job.job_id: found[job.job_id] for job in jobs if job.job_id in found}

    return read


def lack(gpu: Reading | None) -> str:
    """Why nothing may be decided about a job; empty if Prometheus was not asked about it, or shows it."""
    unseen = "" if gpu is None else missing_data(gpu, load_resize())
    if gpu is None or not unseen:
        return ""
    if gpu.window_s is None and gpu.queries:
        return gpu.queries[0]
    return f"Prometheus does not show it: {unseen.removeprefix('unknown: ')}"
